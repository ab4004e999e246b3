#include "base/loadable_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace quarrel {
namespace {

using Folders = std::array<std::filesystem::path, 3>;

Folders module_folders() {
  Folders folders;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&has_module), &here) != 0 && here.dli_fname != nullptr) {
    folders[0] = std::filesystem::path(here.dli_fname).parent_path();
  }
  std::error_code ignored;
  folders[1] = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!folders[1].empty()) folders[2] = folders[1].parent_path() / "lib";
  return folders;
}

void* open_module(const LoadableModule& module) {
  std::error_code ignored;
  for (const std::filesystem::path& folder : module_folders()) {
    const std::filesystem::path file = folder / module.file;
    if (folder.empty() || !std::filesystem::exists(file, ignored)) continue;
    if (void* opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    const char* reason = dlerror();
    fail(ErrorKind::unsupported, "the {} cannot be loaded: {}", module.part, reason == nullptr ? "no reason" : reason);
  }
  fail(ErrorKind::unsupported, "this build has no {}: there is no {} beside the program{}{}", module.part, module.file,
       module.remedy.empty() ? "" : "; ", module.remedy);
}

}  // namespace

bool has_module(const LoadableModule& module) {
  std::error_code ignored;
  return std::ranges::any_of(module_folders(), [&](const std::filesystem::path& folder) {
    return !folder.empty() && std::filesystem::exists(folder / module.file, ignored);
  });
}

void* module_function(const LoadableModule& module, const char* name) {
  void* function = dlsym(open_module(module), name);
  if (function == nullptr) fail(ErrorKind::unsupported, "{} is not a module of this program", module.file);
  return function;
}

}  // namespace quarrel
