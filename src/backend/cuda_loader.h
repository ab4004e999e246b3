// Finds libquarrel_cuda.so beside the program (or beside the library that this is part of) and opens a GPU with it.
// Called where devices are made, by any thread.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quarrel {

// Whether the module is there; nothing is loaded.
bool has_cuda_module();

// Throws Error(unsupported) with a sentence: no module, no driver, no such device.
std::unique_ptr<Device> open_cuda_device(int ordinal);

}  // namespace quarrel
