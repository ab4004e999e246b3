#include "backend/create.h"

#include <fmt/ranges.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"

namespace quarrel {

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  const ThreadOptions threads{.count = options.threads, .pin = options.pin};
  if (options.backend == "cpu") {
    const std::string isa = options.isa.empty() ? environment("QUARREL_ISA").value_or("") : options.isa;
    return std::make_unique<CpuDevice>(threads, choose_level(isa));
  }
  if (options.backend == "reference") return make_reference_device(threads);
  const std::string known = fmt::format("{}", fmt::join(built_in_backends(), " and "));
  if (options.backend == "cuda") fail(ErrorKind::unsupported, "this build has no CUDA backend; it has {}", known);
  fail(ErrorKind::usage, "there is no backend '{}'; this build has {}", printable(options.backend), known);
}

std::vector<std::string> built_in_backends() { return {"cpu", "reference"}; }

std::string available_isa_levels() {
  std::string names;
  for (const IsaLevel level : available_levels()) {
    if (!names.empty()) names += ' ';
    names += level_name(level);
  }
  return names;
}

}  // namespace quarrel
