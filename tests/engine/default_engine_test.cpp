// The real default model behind the engine: a crowd changes no bit, and turns share their beginnings. Skipped, with the
// reason printed, where the model has not been pulled.
#include <gtest/gtest.h>

#include "engine/served.h"
#include "support/default_model.h"

namespace quarrel::test {
namespace {

using DefaultEngine = DefaultModelTest;

TEST_F(DefaultEngine, ACrowdChangesNothing) {
  expect_a_crowd_changes_nothing(path_, 512, 512,
                                 {{.sequences = 64, .chunk = 512},
                                  {.sequences = 64, .prefix_cache = false},
                                  {.chunk = 32},
                                  {.sequences = 8, .cache_tokens = 400},
                                  {.sequences = 64, .steps_in_flight = 2, .late = true}});
}

TEST_F(DefaultEngine, TenTurnsWithACachedPrefix) { expect_turns_to_share(path_, 512); }

}  // namespace
}  // namespace quarrel::test
