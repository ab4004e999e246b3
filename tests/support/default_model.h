// The real default model, where it has been pulled; elsewhere its tests are skipped, with the reason printed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "gguf/store.h"

namespace quarrel::test {

class DefaultModelTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      path_ = ModelStore(StorePaths::from_environment()).resolve("default").path;
    } catch (const Error& error) {
      GTEST_SKIP() << "the default model is not here: " << error.what();
    }
  }

  std::filesystem::path path_;
};

}  // namespace quarrel::test
