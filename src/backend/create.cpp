#include "backend/create.h"

#include <fmt/ranges.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_loader.h"
#include "backend/reference/reference_backend.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (options.backend == "cuda") return open_cuda_device(options.ordinal);
  if (options.backend == "auto") {
    DeviceOptions cpu = options;
    cpu.backend = "cpu";
    cpu.on_fallback = {};
    try {
      std::unique_ptr<Device> gpu = open_cuda_device(options.ordinal);
      gpu->set_fallback([cpu] { return make_device(cpu); });
      return gpu;
    } catch (const Error& error) {
      if (options.on_fallback) options.on_fallback(fmt::format("the model runs on the cpu: {}", error.what()));
    }
    return make_device(cpu);
  }
  const ThreadOptions threads{.count = options.threads, .pin = options.pin};
  if (options.backend == "cpu") {
    const std::string isa = options.isa.empty() ? environment("QUARREL_ISA").value_or("") : options.isa;
    return std::make_unique<CpuDevice>(threads, choose_level(isa));
  }
  if (options.backend == "reference") return make_reference_device(threads);
  fail(ErrorKind::usage, "there is no backend '{}'; this build has {}", printable(options.backend),
       fmt::join(built_in_backends(), ", "));
}

std::vector<std::string> built_in_backends() {
  std::vector<std::string> names{"cpu", "reference", "auto"};
  if (has_cuda_module()) names.insert(names.begin() + 1, "cuda");
  return names;
}

std::string available_isa_levels() {
  std::string names;
  for (const IsaLevel level : available_levels()) {
    if (!names.empty()) names += ' ';
    names += level_name(level);
  }
  return names;
}

}  // namespace quarrel
