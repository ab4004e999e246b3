// The op cases of tests/ops on a GPU: this stands in the place of devices.cpp.
#include <gtest/gtest.h>

#include <memory>

#include "backend/cuda_loader.h"
#include "base/error.h"
#include "cuda/cuda_test.h"
#include "ops/devices.h"

namespace quarrel::test {
namespace {

std::unique_ptr<Device> gpu_or_skip() {
  try {
    return open_cuda_device(0);
  } catch (const Error& error) {
    EXPECT_FALSE(has_gpu()) << "there is a GPU, but: " << error.what();
    [&] { GTEST_SKIP() << "no GPU to test on: " << error.what(); }();
    return nullptr;
  }
}

}  // namespace

// Deterministic, rows take the integer GEMV with 16 bits; otherwise as many as these cases have take F16 activations.
void for_each_device(const std::function<void(const DeviceUnderTest&)>& test) {
  const std::unique_ptr<Device> device = gpu_or_skip();
  if (!device) return;
  for (const bool deterministic : {true, false}) {
    SCOPED_TRACE(deterministic ? "deterministic" : "not deterministic");
    test({.device = *device,
          .epsilon = 4e-6,
          .quantised_epsilon = deterministic ? 1e-4 : 1e-3,
          .deterministic = deterministic,
          .same_bits = deterministic,
          .largest_head = 512});
  }
}

}  // namespace quarrel::test
