// From a name to a device: the one place that knows which backends are built in.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace quarrel {

struct DeviceOptions {
  std::string backend = "cpu";  // one of built_in_backends(); "cuda" always, which says what it lacks
  int ordinal = 0;              // which GPU
  int threads = 0;              // 0: one per core that the process may use
  bool pin = false;             // each thread to a core of its own
  std::string isa = {};         // "scalar", "avx2", "avx512", "amx"; empty: what QUARREL_ISA says, or the best here
  // Called with the reason, a sentence, if "auto" falls back to the CPU because there is no GPU it could use. For
  // models that are too large for the one there is it has a Device::fallback().
  std::function<void(const std::string&)> on_fallback = {};
};

// Throws Error(unsupported) for a backend or an instruction set that this build or machine lacks, and Error(usage) for
// an unknown name.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// The backends of this build, the usual one first: what `DeviceOptions::backend` may be. "cuda" is among them where its
// module is beside the program; "auto" is a GPU where there is one, else the CPU.
std::vector<std::string> built_in_backends();

// Every level this machine can run, best last: "scalar avx2 avx512".
std::string available_isa_levels();

}  // namespace quarrel
