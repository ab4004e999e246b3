#include "ops/devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/reference/reference_backend.h"

namespace quarrel::test {
namespace {

struct DeviceRow {
  std::string label;
  double epsilon;
  double quantised_epsilon;
  std::function<std::unique_ptr<Device>()> make;
};

std::vector<DeviceRow> device_rows() {
  return {
      {.label = "reference, 1 thread",
       .epsilon = 1e-6,
       .quantised_epsilon = 1e-6,
       .make = [] { return make_reference_device(1); }},
      {.label = "reference, 3 threads",
       .epsilon = 1e-6,
       .quantised_epsilon = 1e-6,
       .make = [] { return make_reference_device(3); }},
  };
}

}  // namespace

void for_each_device(const std::function<void(const DeviceUnderTest&)>& test) {
  for (const DeviceRow& row : device_rows()) {
    SCOPED_TRACE(row.label);
    const std::unique_ptr<Device> device = row.make();
    test({.device = *device, .epsilon = row.epsilon, .quantised_epsilon = row.quantised_epsilon});
  }
}

}  // namespace quarrel::test
