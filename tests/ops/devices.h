// The devices that every op case runs on. A new backend or instruction set is one more row in devices.cpp; those of
// GPUs are in tests/cuda/ops_devices.cpp, with which the same cases are a program of their own.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"

namespace quarrel::test {

struct DeviceUnderTest {
  Device& device;
  // How far a result may be from the exact one, relative to the norms of what went into it: a few roundings to F32.
  double epsilon;
  // The same for GEMMs with quantised weights, whose rows a backend may round to int8 first.
  double quantised_epsilon;
  bool deterministic = false;           // what its backends are asked to be
  bool same_bits = true;                // a row's bits depend on nothing else
  std::int32_t largest_head = 1 << 20;  // dimensions that it takes at most
};

// Runs `test` on each device in turn; failures say which.
void for_each_device(const std::function<void(const DeviceUnderTest&)>& test);

}  // namespace quarrel::test
