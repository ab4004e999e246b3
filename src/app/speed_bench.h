// How fast a model runs: the prompt's part and the reply's part apart, repeated, and what each ought to cost. Used by
// `bench`. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "app/device_watch.h"
#include "app/machine_limits.h"
#include "app/statistics.h"
#include "session/loaded_model.h"

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
  DeviceWatch watch;            // a GPU's clocks and load meanwhile
};

// What the model's arithmetic and its memory traffic come to, from the file and the spec alone.
struct ModelCost {
  MultiplyAdds macs_per_token = {};    // one a weight of the layers that a token uses; attention and head not counted
  double weight_bytes_per_step = 0.0;  // read once a step; of experts as many as `batch` tokens use on average
  double cache_bytes_per_step = 0.0;   // keys, values and states of all sequences, the mean over the generated tokens

  double flops_per_token() const noexcept { return 2.0 * macs_per_token.all(); }
  double bytes_per_step() const noexcept { return weight_bytes_per_step + cache_bytes_per_step; }
};
ModelCost model_cost(const Executor& executor, const SpeedSettings& settings);

class SpeedBench {
 public:
  // `go_on` is asked now and then and may throw to stop. The model was loaded for settings.batch sequences, and a
  // context that holds bench_context(settings); nobody else uses it.
  SpeedBench(std::shared_ptr<LoadedModel> model, const SpeedSettings& settings, std::function<void()> go_on);

  // Each warms up once, then measures.
  Speed prefill(bool with_profile);
  Speed decode(bool with_profile);

 private:
  // One repetition: tokens that were computed, and how long that took.
  struct Run {
    std::int64_t tokens = 0;
    double seconds = 0.0;
  };
  Run prefill_once();
  Run decode_once();
  Speed measure(bool with_profile, const std::function<Run()>& once);

  const std::shared_ptr<LoadedModel> model_;
  const SpeedSettings settings_;
  const std::function<void()> go_on_;
  DeviceWatch watch_;            // of what is being measured
  std::vector<TokenId> tokens_;  // random, the same in every run
};

// Tokens of the longest text that is measured.
std::int64_t bench_context(const SpeedSettings& settings) noexcept;

}  // namespace quarrel
