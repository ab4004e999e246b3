// What tests of the CUDA backend share: the device, or a reason to skip.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "backend/cuda_loader.h"
#include "base/error.h"

namespace quarrel::test {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda_ = open_cuda_device(0);
    } catch (const Error& error) {
      GTEST_SKIP() << "no GPU to test on: " << error.what();
    }
  }

  std::unique_ptr<Device> cuda_;
};

}  // namespace quarrel::test
