#include "app/speed_bench.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "quant/types.h"

namespace quarrel {
namespace {

// Which share of the experts' weights `rows` tokens meet on average, were they routed evenly.
double expert_share(const ModelSpec& spec, std::int32_t rows) {
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn.part);
    if (moe == nullptr || moe->experts == 0) continue;
    return 1.0 - std::pow(1.0 - static_cast<double>(moe->used) / moe->experts, rows);
  }
  return 1.0;
}

bool is_expert(std::string_view name) { return name.find("_exps") != std::string_view::npos; }

}  // namespace

ModelCost model_cost(const Executor& executor, const Backend& backend, const SpeedSettings& settings) {
  const GgufFile& file = executor.file();
  const ModelSpec& spec = executor.spec();
  const bool tied = file.find_tensor("output.weight") == nullptr;
  const double one_token = expert_share(spec, 1);
  const double one_step = expert_share(spec, settings.batch);
  ModelCost cost;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool expert = is_expert(tensor.name);
    if (tensor.name != "token_embd.weight" || tied) {
      cost.weight_bytes_per_step += static_cast<double>(tensor.bytes) * (expert ? one_step : 1.0);
    }
    if (tensor.dimensions >= 2 && tensor.name.starts_with("blk.")) {
      const double flops = 2.0 * static_cast<double>(tensor.elements()) * (expert ? one_token : 1.0);
      cost.flops_per_token += flops;
      if (type_info(tensor.type).block_weights > 1) cost.quantised_flops_per_token += flops;
    }
  }
  const double positions = settings.depth + (settings.generated + 1) / 2.0;
  for (const KvGroup& group : executor.model().kv_groups()) {
    const double seen = group.window > 0 ? std::min<double>(positions, group.window) : positions;
    cost.cache_bytes_per_step +=
        seen * static_cast<double>(backend.kv_bytes(group, executor.kv_type())) / backend.block_tokens();
  }
  cost.cache_bytes_per_step += static_cast<double>(backend.state_bytes(executor.model().state_layers()));
  cost.cache_bytes_per_step *= settings.batch;
  return cost;
}

SpeedBench::SpeedBench(Executor& executor, const SpeedSettings& settings, std::function<void()> between_steps)
    : executor_(executor), settings_(settings), between_steps_(std::move(between_steps)) {
  // Random ids, so that experts are met as evenly as in a text and not as in a loop.
  constexpr std::uint64_t kSeed = 1;
  const auto count = static_cast<std::size_t>(std::max({settings.prompt, settings.depth, settings.generated}));
  for (std::size_t i = 0; i < count; ++i) {
    tokens_.push_back(static_cast<TokenId>(uniform(kSeed, i) * executor.spec().vocabulary));
  }
}

Speed SpeedBench::prefill(bool with_profile) {
  return measure(settings_.prompt, with_profile, [this] { return prefill_once(); });
}

double SpeedBench::prefill_once() {
  const std::span<const TokenId> tokens(tokens_.data(), static_cast<std::size_t>(settings_.prompt));
  const SampleRequest request;
  Want want{.index = settings_.prompt - 1, .sample = &request};
  std::vector<float> embedding;
  if (!executor_.spec().has_head) {  // an encoder: its text becomes one vector
    embedding.resize(static_cast<std::size_t>(executor_.model().embedding_width()));
    want.sample = nullptr;
    want.embedding = embedding.data();
  }
  Sequence sequence = executor_.make_sequence();
  const auto start = Clock::now();
  executor_.run_chunked({.sequence = &sequence, .tokens = tokens, .row_class = RowClass::prompt, .wants = {&want, 1}});
  const double seconds = seconds_since(start);
  executor_.truncate(sequence, 0);
  return seconds;
}

Speed SpeedBench::decode(bool with_profile) {
  std::vector<Sequence> sequences;
  for (std::int32_t i = 0; i < settings_.batch; ++i) {
    Sequence& sequence = sequences.emplace_back(executor_.make_sequence());
    return_to_depth(sequence);
    executor_.mark(sequence);
    between_steps_();
  }
  const std::int64_t tokens = std::int64_t{settings_.generated} * settings_.batch;
  Speed speed = measure(tokens, with_profile, [&] { return decode_once(sequences); });
  for (Sequence& sequence : sequences) executor_.truncate(sequence, 0);
  return speed;
}

// What a window or a recurrent state cannot go back to is fed again.
void SpeedBench::return_to_depth(Sequence& sequence) {
  const auto kept = static_cast<std::size_t>(executor_.truncate(sequence, settings_.depth));
  const auto missing = static_cast<std::size_t>(settings_.depth) - kept;
  if (missing == 0) return;
  const std::span<const TokenId> tokens(tokens_.data() + kept, missing);
  executor_.run_chunked({.sequence = &sequence, .tokens = tokens, .row_class = RowClass::prompt, .wants = {}});
}

double SpeedBench::decode_once(std::vector<Sequence>& sequences) {
  const SampleRequest request;
  const Want want{.index = 0, .sample = &request};
  const auto start = Clock::now();
  for (std::int32_t i = 0; i < settings_.generated; ++i) {
    std::vector<Feed> feeds;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const std::size_t token = (static_cast<std::size_t>(i) + s * 17) % tokens_.size();
      feeds.push_back({.sequence = &sequences[s],
                       .tokens = {&tokens_[token], 1},
                       .row_class = RowClass::generated,
                       .wants = {&want, 1}});
    }
    executor_.run(feeds);
    between_steps_();
  }
  const double seconds = seconds_since(start);
  for (Sequence& sequence : sequences) return_to_depth(sequence);
  return seconds;
}

Speed SpeedBench::measure(std::int64_t tokens, bool with_profile, const std::function<double()>& once) {
  once();
  between_steps_();
  Speed speed;
  for (std::int32_t i = 0; i < settings_.repeat; ++i) {
    speed.seconds.push_back(std::max(once(), 1e-9));
    speed.tokens_per_s.add(static_cast<double>(tokens) / speed.seconds.back());
    between_steps_();
  }
  if (with_profile) {
    // A run of its own: reading the clock around each op takes time too.
    executor_.backend().set_profiling(true);
    once();
    speed.profile = executor_.backend().profile();
    executor_.backend().set_profiling(false);
    std::ranges::sort(speed.profile, std::ranges::greater{}, &OpTime::seconds);
  }
  return speed;
}

}  // namespace quarrel
