// The devices that every op case runs on. A new backend or instruction set is one more row in devices.cpp.
#pragma once

#include <functional>

#include "backend/backend.h"

namespace quarrel::test {

struct DeviceUnderTest {
  Device& device;
  // How far a result may be from the exact one, relative to the norms of what went into it: a few roundings to F32.
  double epsilon;
  // The same for GEMMs with quantised weights, whose rows a backend may round to int8 first.
  double quantised_epsilon;
};

// Runs `test` on each device in turn; failures say which.
void for_each_device(const std::function<void(const DeviceUnderTest&)>& test);

}  // namespace quarrel::test
