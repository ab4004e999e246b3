// The one function that libquarrel_cuda.so offers. The program finds it at run time (backend/cuda_loader.h), so that it
// also runs where there is no CUDA. Both sides are of one build: what they hand each other are C++ objects.
#pragma once

#include <cstddef>

namespace quarrel {

class Device;

// Counts changes of what the two sides share: Device, Backend and everything they mention.
inline constexpr int kCudaModuleVersion = 2;

// The device `ordinal`, to be deleted by the caller; or null, and into `reason` (of `capacity` bytes) a sentence why
// not.
using OpenCudaDevice = Device* (*)(int version, int ordinal, char* reason, std::size_t capacity);
inline constexpr const char* kOpenCudaDevice = "quarrel_open_cuda_device";

}  // namespace quarrel
