// The promise of determinism_test.cpp on few requests, so that the thread sanitizer sees the whole engine at it: alone,
// together, and with so few blocks that they preempt each other.
#include <gtest/gtest.h>

#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class SmallCrowd : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Toys, SmallCrowd, testing::Values("llama", "granitehybrid"));

TEST_P(SmallCrowd, ChangesNothing) {
  const TempDir folder;
  const auto model = write_toy(GetParam(), folder.path(), {.type = QuantType::q8_0, .context = 256});
  expect_a_crowd_changes_nothing(model, 256, 128, {{.sequences = 12}, {.sequences = 8, .cache_tokens = 208}}, 14);
}

}  // namespace
}  // namespace quarrel::test
