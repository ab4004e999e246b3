#include "ops/devices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "backend/create.h"
#include "backend/reference/reference_backend.h"
#include "support/late_device.h"

namespace quarrel::test {
namespace {

struct DeviceRow {
  std::string label;
  double epsilon;
  double quantised_epsilon;
  std::function<std::unique_ptr<Device>()> make;
};

std::vector<DeviceRow> device_rows() {
  std::vector<DeviceRow> rows = {
      {.label = "reference, 1 thread",
       .epsilon = 1e-6,
       .quantised_epsilon = 1e-6,
       .make = [] { return make_reference_device({.count = 1}); }},
      {.label = "reference, 3 threads",
       .epsilon = 1e-6,
       .quantised_epsilon = 1e-6,
       .make = [] { return make_reference_device({.count = 3}); }},
  };
  std::istringstream levels(available_isa_levels());
  for (std::string level; levels >> level;) {
    for (const int threads : {1, 3}) {
      rows.push_back({.label = fmt::format("cpu {}, {} threads", level, threads),
                      .epsilon = 4e-6,
                      .quantised_epsilon = 1e-4,
                      .make = [=] { return make_device({.backend = "cpu", .threads = threads, .isa = level}); }});
    }
  }
  // The same arithmetic with padding, on a thread of its own.
  rows.push_back({.label = "late reference", .epsilon = 1e-6, .quantised_epsilon = 1e-6, .make = [] {
                    return make_late_device({.backend = "reference", .threads = 1});
                  }});
  rows.push_back({.label = "late cpu", .epsilon = 4e-6, .quantised_epsilon = 1e-4, .make = [] {
                    return make_late_device({.backend = "cpu", .threads = 2});
                  }});
  return rows;
}

void run_on(const DeviceRow& row, const std::function<void(const DeviceUnderTest&)>& test) {
  SCOPED_TRACE(row.label);
  const std::unique_ptr<Device> device = row.make();
  test({.device = *device, .epsilon = row.epsilon, .quantised_epsilon = row.quantised_epsilon});
}

}  // namespace

void for_each_device(const std::function<void(const DeviceUnderTest&)>& test) {
  for (const DeviceRow& row : device_rows()) run_on(row, test);
}

}  // namespace quarrel::test
