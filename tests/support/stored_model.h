// A real model that has been pulled into the store; elsewhere its tests are skipped, with the reason printed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"
#include "store/store.h"

namespace quarrel::test {

class StoredModelTest : public testing::Test {
 protected:
  explicit StoredModelTest(std::string name) : name_(std::move(name)) {}

  void SetUp() override {
    try {
      path_ = ModelStore(StorePaths::from_environment()).resolve(name_).path;
    } catch (const Error& error) {
      GTEST_SKIP() << "the model \"" << name_ << "\" is not here: " << error.what();
    }
  }

  std::string name_;
  std::filesystem::path path_;
};

}  // namespace quarrel::test
