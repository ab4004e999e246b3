// What tests of the CUDA backend share: the device, or a reason to skip. Where there is a GPU that cannot be opened
// they fail.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "backend/cuda_loader.h"
#include "base/environment.h"
#include "base/error.h"

namespace quarrel::test {

// The driver has a device, whether or not this program can use it, and nobody has hidden it.
inline bool has_gpu() {
  if (environment("CUDA_VISIBLE_DEVICES") == "") return false;
  std::error_code nothing_there;
  return std::filesystem::exists("/dev/nvidiactl", nothing_there);
}

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda_ = open_cuda_device(0);
    } catch (const Error& error) {
      ASSERT_FALSE(has_gpu()) << "there is a GPU, but: " << error.what();
      GTEST_SKIP() << "no GPU to test on: " << error.what();
    }
  }

  std::unique_ptr<Device> cuda_;
};

}  // namespace quarrel::test
