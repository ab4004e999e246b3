#include "api/conversions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/errors.h"
#include "base/cpu_topology.h"
#include "base/json_depth.h"

namespace quarrel::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);
constexpr int kDeepestJson = 64;

// One of a list that has the same order on both sides.
template <typename To, std::size_t N, typename From>
To choose(const std::array<To, N>& values, From from, const char* what) {
  const auto index = static_cast<std::size_t>(from);
  if (index >= N) refuse(ErrorKind::usage, "{} has no meaning by the number {}", what, static_cast<int>(from));
  return values[index];
}

constexpr std::array kPoolings{quarrel::Pooling::none, quarrel::Pooling::mean, quarrel::Pooling::cls,
                               quarrel::Pooling::last, quarrel::Pooling::rank};

Json parse_json(const std::string& text, Json::value_t kind, const char* what, const char* wanted) {
  if (text.empty()) return nullptr;
  if (nests_deeper(text, kDeepestJson)) {
    refuse(ErrorKind::bad_input, "{} nest deeper than {} levels", what, kDeepestJson);
  }
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) refuse(ErrorKind::bad_input, "{} are not JSON", what);
  if (value.type() != kind) refuse(ErrorKind::bad_input, "{} have to be {}, not a {}", what, wanted, value.type_name());
  return value;
}

// A callback of the user's, for one answer.
class CallbackMask : public quarrel::TokenMask {
 public:
  CallbackMask(api::TokenMask callback, std::int32_t answer)
      : callback_(std::move(callback)), answer_(static_cast<std::size_t>(answer)) {}
  void allow(std::span<const TokenId> answer, std::span<std::uint64_t> allowed) override {
    callback_(answer_, answer, allowed);
  }

 private:
  api::TokenMask callback_;
  std::size_t answer_;
};

SamplingParams sampling_of(const GenerateOptions& options) {
  constexpr std::array kScopes{quarrel::PenaltyScope::answer, quarrel::PenaltyScope::recent};
  SamplingParams params{.temperature = options.temperature,
                        .top_k = options.top_k,
                        .top_p = options.top_p,
                        .min_p = options.min_p,
                        .typical_p = options.typical_p,
                        .repeat_penalty = options.repeat_penalty,
                        .presence_penalty = options.presence_penalty,
                        .frequency_penalty = options.frequency_penalty,
                        .penalty_window = options.penalty_window,
                        .mirostat = options.mirostat,
                        .mirostat_tau = options.mirostat_tau,
                        .mirostat_eta = options.mirostat_eta,
                        .logit_bias = options.logit_bias};
  params.penalty_scope = choose(kScopes, options.penalty_scope, "the penalties' scope");
  return params;
}

void check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    refuse(ErrorKind::usage, "{} can be {} to {}, not {}", what, least, most, value);
  }
}

void check_ranges(const LoadOptions& options) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  check_range("the number of threads", options.threads, 0, read_cpu_topology().thread_limit());
  check_range("the number of sequences", options.sequences, 1, 1024);
  check_range("the context", options.context, 0, kMost);
  check_range("the cache's tokens", options.cache_tokens, 0, kMostTokens);
  check_range("the batch's rows", options.batch_rows, 1, 1 << 20);
  check_range("the queue's limit", options.queue_limit, 0, kMost);
  check_range("the queue's limit in tokens", options.queue_token_limit, 0, std::numeric_limits<std::int64_t>::max());
  check_range("a key's limit", options.key_queue_limit, 0, kMost);
  check_range("a key's limit in tokens", options.key_queue_token_limit, 0, std::numeric_limits<std::int64_t>::max());
}

TemplateSelection template_of(const LoadOptions& options) {
  using Kind = TemplateSelection::Kind;
  if (!options.template_name.empty() && !options.chat_template.empty()) {
    refuse(ErrorKind::usage, "a chat template is given by its text and by its name: one of them will do");
  }
  if (!options.chat_template.empty()) return {.kind = Kind::text, .value = options.chat_template};
  if (options.template_name == "none") return {.kind = Kind::none};
  if (!options.template_name.empty()) return {.kind = Kind::named, .value = options.template_name};
  return {};
}

}  // namespace

FinishReason reason_of(quarrel::FinishReason reason) noexcept {
  switch (reason) {
    case quarrel::FinishReason::stop: return FinishReason::stop;
    case quarrel::FinishReason::length: return FinishReason::length;
    case quarrel::FinishReason::context: return FinishReason::context;
    case quarrel::FinishReason::cancelled: return FinishReason::cancelled;
    case quarrel::FinishReason::timeout: return FinishReason::timeout;
    case quarrel::FinishReason::failed: return FinishReason::failed;
    case quarrel::FinishReason::no_token: return FinishReason::no_token;
  }
  return FinishReason::failed;
}

Pooling pooling_of(quarrel::Pooling pooling) noexcept {
  return static_cast<Pooling>(std::ranges::find(kPoolings, pooling) - kPoolings.begin());
}

quarrel::Pooling inner(Pooling pooling) { return choose(kPoolings, pooling, "the pooling"); }

quarrel::Priority inner(Priority priority) {
  constexpr std::array kPriorities{quarrel::Priority::interactive, quarrel::Priority::normal, quarrel::Priority::batch};
  return choose(kPriorities, priority, "the priority");
}

std::chrono::microseconds microseconds_of(std::chrono::milliseconds time) noexcept {
  return std::clamp(time, -kLongestTimeout, kLongestTimeout);
}

ChatInput chat_input_of(const Chat& chat) {
  if (chat.messages.empty()) refuse(ErrorKind::bad_input, "there are no messages");
  ChatInput input{.add_generation_prompt = chat.add_generation_prompt};
  for (const Message& message : chat.messages) {
    Json entry{{"role", message.role}, {"content", message.content}};
    const Json more = parse_json(message.more, Json::value_t::object, "a message's further fields", "an object");
    for (const auto& [key, value] : more.items()) entry[key] = value;
    input.messages.push_back(std::move(entry));
  }
  input.tools = parse_json(chat.tools, Json::value_t::array, "the tools", "a list");
  input.arguments = parse_json(chat.arguments, Json::value_t::object, "the template's arguments", "an object");
  return input;
}

Ask ask_of(const Prompt& prompt, const GenerateOptions& options) {
  constexpr std::array kOverflows{quarrel::Overflow::refuse, quarrel::Overflow::stop, quarrel::Overflow::shift};
  Ask ask{.sampling = sampling_of(options),
          .seed = options.seed,
          .max_tokens = options.max_tokens,
          .stop = options.stop,
          .stop_tokens = options.stop_tokens,
          .show_special = options.show_special,
          .answers = options.answers,
          .best_of = options.best_of,
          .top = options.logprobs,
          .prompt_scores = options.prompt_logprobs,
          .overflow = choose(kOverflows, options.overflow, "the overflow policy"),
          .keep = options.keep,
          .priority = inner(options.priority),
          .key = options.key,
          .salt = options.salt,
          .use_cache = options.use_cache,
          .pinned = options.pinned,
          .timeout = microseconds_of(options.timeout)};
  if (const auto* text = std::get_if<std::string>(&prompt.value)) {
    ask.prompt = *text;
  } else if (const auto* tokens = std::get_if<std::vector<Token>>(&prompt.value)) {
    ask.prompt = *tokens;
  } else {
    ask.prompt = chat_input_of(std::get<Chat>(prompt.value));
  }
  if (options.mask) {
    ask.mask = [mask = options.mask](std::int32_t answer) { return std::make_unique<CallbackMask>(mask, answer); };
  }
  return ask;
}

EmbeddingOptions embedding_options_of(const EmbedOptions& options) {
  EmbeddingOptions result{.normalize = options.normalize,
                          .dimensions = options.dimensions,
                          .priority = inner(options.priority),
                          .key = options.key,
                          .timeout = microseconds_of(options.timeout)};
  if (options.pooling) result.pooling = inner(*options.pooling);
  return result;
}

quarrel::LoadOptions load_options_of(const LoadOptions& options) {
  constexpr std::array kKvTypes{quarrel::KvType::f32, quarrel::KvType::f16};
  constexpr std::array kActivations{ActivationPrecision::outlier_groups, ActivationPrecision::int8_split,
                                    ActivationPrecision::int8, ActivationPrecision::f32, ActivationPrecision::f16};
  check_ranges(options);
  quarrel::LoadOptions result;
  ExecutorOptions& executor = result.executor;
  executor.context = options.context;
  executor.sequences = options.sequences;
  executor.cache_tokens = options.cache_tokens;
  executor.batch_rows = options.batch_rows;
  if (options.kv_type) executor.kv_type = choose(kKvTypes, *options.kv_type, "the KV type");
  executor.activations = choose(kActivations, options.activations, "the activations' precision");
  executor.repack = options.repack;
  if (options.memory > 0) executor.memory_budget = options.memory;
  executor.expert_memory = options.expert_memory;
  if (options.pooling) executor.pooling = inner(*options.pooling);
  result.engine.queue_limit = options.queue_limit;
  result.engine.queue_token_limit = options.queue_token_limit;
  result.engine.key_queue_limit = options.key_queue_limit;
  result.engine.key_queue_token_limit = options.key_queue_token_limit;
  result.engine.prefix_cache = options.prefix_cache;
  result.chat_template = template_of(options);
  result.warm_up = options.warm_up;
  return result;
}

}  // namespace quarrel::api
