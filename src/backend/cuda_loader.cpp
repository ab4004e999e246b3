#include "backend/cuda_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>

#include "backend/cuda/cuda_module.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr const char* kModule = "libquarrel_cuda.so";

// The folders of the file that this code lies in, and of the program.
std::array<std::filesystem::path, 2> module_folders() {
  std::array<std::filesystem::path, 2> folders;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&open_cuda_device), &here) != 0 && here.dli_fname != nullptr) {
    folders[0] = std::filesystem::path(here.dli_fname).parent_path();
  }
  std::error_code ignored;
  folders[1] = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return folders;
}

// It is never closed: its devices may outlive whoever opened it.
void* open_module() {
  std::error_code ignored;
  for (const std::filesystem::path& folder : module_folders()) {
    const std::filesystem::path file = folder / kModule;
    if (folder.empty() || !std::filesystem::exists(file, ignored)) continue;
    if (void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
    const char* reason = dlerror();
    fail(ErrorKind::unsupported, "the CUDA backend cannot be loaded: {}", reason == nullptr ? "no reason" : reason);
  }
  fail(ErrorKind::unsupported, "this build has no CUDA backend: there is no {} beside the program", kModule);
}

}  // namespace

bool has_cuda_module() {
  std::error_code ignored;
  return std::ranges::any_of(module_folders(), [&](const std::filesystem::path& folder) {
    return !folder.empty() && std::filesystem::exists(folder / kModule, ignored);
  });
}

std::unique_ptr<Device> open_cuda_device(int ordinal) {
  void* module = open_module();
  const auto open = reinterpret_cast<OpenCudaDevice>(dlsym(module, kOpenCudaDevice));
  if (open == nullptr) fail(ErrorKind::unsupported, "{} is no module of quarrel", kModule);
  std::array<char, 512> reason{};
  std::unique_ptr<Device> device(open(kCudaModuleVersion, ordinal, reason.data(), reason.size()));
  if (device == nullptr) fail(ErrorKind::unsupported, "{}", reason.data());
  return device;
}

}  // namespace quarrel
