// The real default model behind the engine: a crowd changes no bit, and turns share their beginnings. Skipped, with the
// reason printed, where the model has not been pulled.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/served.h"
#include "gguf/store.h"

namespace quarrel::test {
namespace {

class DefaultEngine : public testing::Test {
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

TEST_F(DefaultEngine, ACrowdChangesNothing) {
  expect_a_crowd_changes_nothing(path_, 512, 512,
                                 {{.sequences = 64, .chunk = 512},
                                  {.sequences = 64, .prefix_cache = false},
                                  {.chunk = 32},
                                  {.sequences = 8, .cache_tokens = 400}});
}

TEST_F(DefaultEngine, TenTurnsWithACachedPrefix) { expect_turns_to_share(path_, 512); }

}  // namespace
}  // namespace quarrel::test
