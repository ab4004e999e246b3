// How fast a model runs: the prompt's part and the reply's part apart, repeated, and what each ought to cost. Used by
// `bench`. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/statistics.h"
#include "engine/executor.h"

namespace quarrel {

struct SpeedSettings {
  std::int32_t prompt = 512;     // tokens
  std::int32_t generated = 128;  // tokens a sequence
  std::int32_t depth = 0;        // tokens in the cache before the first generated one
  std::int32_t batch = 1;        // sequences decoded together
  std::int32_t repeat = 5;
};

struct Speed {
  RunningMean tokens_per_s;
  std::vector<double> seconds;  // of each repetition
  std::vector<OpTime> profile;  // of one more, slowest first; empty unless asked for
};

// What the model's arithmetic and its memory traffic come to, from the file and the spec alone.
struct ModelCost {
  double flops_per_token = 0.0;  // 2 a weight of the layers that a token meets; attention and head not counted
  double quantised_flops_per_token = 0.0;  // of those, with weights of a quantised type
  double weight_bytes_per_step = 0.0;      // read once a step; of experts as many as `batch` tokens meet on average
  double cache_bytes_per_step = 0.0;  // keys, values and states of all sequences, the mean over the generated tokens
};
ModelCost model_cost(const Executor& executor, const Backend& backend, const SpeedSettings& settings);

class SpeedBench {
 public:
  // `between_steps` may throw to stop. The executor must be made for settings.batch sequences and a context that holds
  // the prompt, and depth and generated tokens together.
  SpeedBench(Executor& executor, const SpeedSettings& settings, std::function<void()> between_steps);

  // Each warms up once, then measures.
  Speed prefill(bool with_profile);
  Speed decode(bool with_profile);

 private:
  double prefill_once();
  void return_to_depth(Sequence& sequence);
  double decode_once(std::vector<Sequence>& sequences);
  Speed measure(std::int64_t tokens, bool with_profile, const std::function<double()>& once);

  Executor& executor_;
  SpeedSettings settings_;
  std::function<void()> between_steps_;
  std::vector<TokenId> tokens_;  // random, the same in every run
};

}  // namespace quarrel
