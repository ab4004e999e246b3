// The promise of determinism_test.cpp on few requests, so that the thread sanitizer sees the whole engine at it: alone,
// together, and with so few blocks that they preempt each other.
#include <gtest/gtest.h>

#include "engine/served.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

// The first four are short and have long answers: they begin together and outgrow a small cache, whatever the clock
// makes of the rest.
std::vector<EngineRequest> few_requests(std::int32_t vocabulary) {
  std::vector<EngineRequest> requests;
  for (std::uint32_t i = 0; i < 4; ++i) {
    requests.push_back(text_request(random_tokens(20, vocabulary, 500 + i), 110));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
  }
  for (EngineRequest& request : many_requests(vocabulary, 8)) requests.push_back(std::move(request));
  return requests;
}

class SmallCrowd : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Toys, SmallCrowd, testing::Values("llama", "granitehybrid"));

TEST_P(SmallCrowd, ChangesNothing) {
  const TempDir folder;
  const auto model = write_toy(GetParam(), folder.path(), {.type = QuantType::q8_0, .context = 256});
  std::vector<Setting> crowds = {{.sequences = 12},
                                 {.sequences = 8, .cache_tokens = 208, .steps_in_flight = 2, .late = true}};
  if (!kSanitized) {
    crowds.insert(crowds.end(),
                  {{.sequences = 8, .cache_tokens = 208}, {.sequences = 12, .steps_in_flight = 2, .late = true}});
  }
  expect_a_crowd_changes_nothing(model, 256, 128, crowds, few_requests);
}

}  // namespace
}  // namespace quarrel::test
