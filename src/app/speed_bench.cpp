#include "app/speed_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "session/refusal.h"

namespace quarrel {
namespace {

// Which share of the experts' weights `rows` tokens use on average if they are routed evenly.
double expert_share(const ModelSpec& spec, std::int32_t rows) {
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn.function);
    if (moe == nullptr || moe->experts == 0) continue;
    return 1.0 - std::pow(1.0 - static_cast<double>(moe->used) / moe->experts, rows);
  }
  return 1.0;
}

bool is_expert(std::string_view name) { return name.find("_exps") != std::string_view::npos; }

bool has_experts(const ModelSpec& spec) {
  return std::ranges::any_of(
      spec.layers, [](const LayerSpec& layer) { return std::holds_alternative<MoeSpec>(layer.ffn.function); });
}

// When what happened, of several requests that run together.
class Stopwatch final : public EventSink {
 public:
  explicit Stopwatch(std::size_t requests) : requests_(requests) {}

  void take(std::span<TokenEvent> events) override {
    const std::scoped_lock lock(mutex_);
    for (const TokenEvent& event : events) {
      if (event.kind == TokenEvent::Kind::started && started_++ == 0) start_ = event.at;
      if (event.kind == TokenEvent::Kind::token) note_token(event);
      if (event.kind != TokenEvent::Kind::finished) continue;
      if (event.reason != FinishReason::length) failure_ = failure_text(event.reason, event.error);
      end_ = event.at;
      ++finished_;
    }
    changed_.notify_all();
  }

  // Waits until all have ended; `go_on` may throw. Throws Error(bad_file) if one of them failed.
  void wait(const std::function<void()>& go_on) {
    std::unique_lock lock(mutex_);
    while (finished_ < requests_) {
      changed_.wait_for(lock, kLook, [this] { return finished_ == requests_; });
      lock.unlock();
      go_on();
      lock.lock();
    }
    if (!failure_.empty()) fail(ErrorKind::bad_file, "{}", failure_);
  }

  double all_seconds() const { return seconds(start_, end_); }
  // From when all had their first token: the tokens after that, and the time they took.
  std::int64_t later_tokens() const noexcept { return later_; }
  double later_seconds() const { return seconds(all_began_, last_); }

 private:
  static constexpr std::chrono::milliseconds kLook{20};
  static double seconds(Clock::time_point from, Clock::time_point to) {
    return std::max(1e-9, std::chrono::duration<double>(to - from).count());
  }
  void note_token(const TokenEvent& event) {
    last_ = event.at;
    if (began_.insert(event.request).second) {
      all_began_ = event.at;
      later_ = 0;
    } else {
      ++later_;
    }
  }

  const std::size_t requests_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<RequestId> began_;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::int64_t later_ = 0;
  Clock::time_point start_ = {}, end_ = {}, all_began_ = {}, last_ = {};
  std::string failure_;
};

}  // namespace

std::int64_t bench_context(const SpeedSettings& settings) noexcept {
  const std::int64_t generated = settings.generated > 0 ? std::int64_t{settings.generated} + 1 : 0;
  return std::max<std::int64_t>(settings.prompt, generated > 0 ? std::max(settings.depth, 1) + generated : 0);
}

ModelCost model_cost(const Executor& executor, const SpeedSettings& settings) {
  const Backend& backend = executor.backend();
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
      const double macs = static_cast<double>(tensor.elements()) * (expert ? one_token : 1.0);
      cost.macs_per_token[weight_kind_of(tensor.type)] += macs;
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

SpeedBench::SpeedBench(std::shared_ptr<LoadedModel> model, const SpeedSettings& settings, std::function<void()> go_on)
    : model_(std::move(model)), settings_(settings), go_on_([this, ask = std::move(go_on)] {
        ask();
        watch_.look(model_->device());
      }) {
  // Random ids, so that experts are met as evenly as in a text and not as in a loop.
  constexpr std::uint64_t kSeed = 1;
  const auto count = static_cast<std::size_t>(std::max({settings.prompt, settings.depth, 1}));
  for (std::size_t i = 0; i < count; ++i) {
    tokens_.push_back(static_cast<TokenId>(uniform(kSeed, i) * model_->spec().vocabulary));
  }
}

Speed SpeedBench::prefill(bool with_profile) {
  return measure(with_profile, [this] { return prefill_once(); });
}

// The rows of a prompt, with a first token where the context has room for one; or a text's vector.
SpeedBench::Run SpeedBench::prefill_once() {
  EngineRequest request;
  request.prompt.assign(tokens_.begin(), tokens_.begin() + settings_.prompt);
  request.max_tokens = model_->generates() && settings_.prompt < model_->context() ? 1 : 0;
  request.pooled = !model_->generates();
  request.pooling = model_->pooling();
  request.use_cache = false;
  const auto watch = std::make_shared<Stopwatch>(1);
  require_accepted(model_->engine().submit(std::move(request), watch));
  watch->wait(go_on_);
  return {.tokens = settings_.prompt, .seconds = watch->all_seconds()};
}

Speed SpeedBench::decode(bool with_profile) {
  return measure(with_profile, [this] { return decode_once(); });
}

// Each sequence has blocks of its own for what stands before; they stay cached from one repetition to the next. Rows
// are measured from when all sequences have their first token.
SpeedBench::Run SpeedBench::decode_once() {
  const auto watch = std::make_shared<Stopwatch>(static_cast<std::size_t>(settings_.batch));
  Engine& engine = model_->engine();
  engine.pause();
  for (std::int32_t i = 0; i < settings_.batch; ++i) {
    EngineRequest request;
    request.prompt.assign(tokens_.begin(), tokens_.begin() + std::max(settings_.depth, 1));
    request.max_tokens = settings_.generated + 1;
    request.salt = static_cast<std::uint64_t>(i) + 1;
    // What is always the likeliest soon goes in circles, and always to the same experts.
    request.sampling.temperature = has_experts(model_->spec()) ? 1.0f : 0.0f;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    require_accepted(engine.submit(std::move(request), watch));
  }
  engine.resume();
  watch->wait(go_on_);
  return {.tokens = watch->later_tokens(), .seconds = watch->later_seconds()};
}

Speed SpeedBench::measure(bool with_profile, const std::function<Run()>& once) {
  once();
  watch_ = {};
  Speed speed;
  for (std::int32_t i = 0; i < settings_.repeat; ++i) {
    const Run run = once();
    speed.seconds.push_back(run.seconds);
    speed.tokens_per_s.add(static_cast<double>(run.tokens) / run.seconds);
  }
  watch_.look(model_->device());
  speed.watch = watch_;
  if (with_profile) {
    // A run of its own: reading the clock around each op takes time too.
    model_->engine().watch_times(true);
    once();
    speed.profile = model_->engine().observe().times;
    model_->engine().watch_times(false);
    std::ranges::sort(speed.profile, std::ranges::greater{}, &OpTime::seconds);
  }
  return speed;
}

}  // namespace quarrel
