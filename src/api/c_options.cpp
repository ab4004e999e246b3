// What callers of the C interface hand in, as C++ has it: options, prompts, conversations.
#include <cstdint>
#include <string>

#include "api/c_support.h"

namespace quarrel::api {
namespace {

// A number of the C interface as the enumeration with those values.
template <typename Enum>
Enum enum_of(std::int32_t number, Enum last, const char* what) {
  if (number < 0 || number > static_cast<std::int32_t>(last)) {
    refuse(ErrorKind::usage, "{} has no meaning by the number {}", what, number);
  }
  return static_cast<Enum>(number);
}

// The same where 0 stands for none and the others come one later.
template <typename Enum>
std::optional<Enum> optional_enum_of(std::int32_t number, Enum last, const char* what) {
  if (number == 0) return std::nullopt;
  return enum_of(number - 1, last, what);
}

void check_reserved(std::int32_t value, const char* what) {
  if (value != 0) refuse(ErrorKind::unsupported, "a reserved field of {} is set", what);
}

std::string string_of(const quarrel_text& text, const char* what) { return std::string(view_of(text, what)); }

TokenMask mask_of(quarrel_mask_callback mask, void* user) {
  if (mask == nullptr) return {};
  return [mask, user](std::size_t answer, std::span<const Token> tokens, std::span<std::uint64_t> allowed) {
    if (mask(answer, tokens.data(), tokens.size(), allowed.data(), allowed.size(), user) != 0) return;
    refuse(ErrorKind::failed, "the mask's callback gave up");
  };
}

}  // namespace

LoadOptions load_options_of(const quarrel_load_options* options) {
  quarrel_load_options defaults;
  quarrel_load_options_init(&defaults, sizeof defaults);
  const quarrel_load_options given = read_struct(options, defaults, "the load options");
  check_reserved(given.reserved, "the load options");
  check_reserved(given.reserved2, "the load options");
  LoadOptions result;
  result.threads = given.threads;
  result.pin = given.pin != 0;
  result.context = given.context;
  result.sequences = given.sequences;
  result.cache_tokens = given.cache_tokens;
  result.batch_rows = given.batch_rows;
  result.kv_type = optional_enum_of(given.kv_type, KvType::f16, "the KV type");
  result.activations = enum_of(given.activations, Activations::f16, "the activations' precision");
  result.repack = given.repack != 0;
  result.memory = given.memory;
  if (given.has_expert_memory != 0) result.expert_memory = given.expert_memory;
  result.pooling = optional_enum_of(given.pooling, Pooling::rank, "the pooling");
  result.prefix_cache = given.prefix_cache != 0;
  result.queue_limit = given.queue_limit;
  result.queue_token_limit = given.queue_token_limit;
  result.key_queue_limit = given.key_queue_limit;
  result.key_queue_token_limit = given.key_queue_token_limit;
  result.warm_up = given.warm_up != 0;
  result.chat_template = string_of(given.chat_template, "the chat template");
  result.template_name = string_of(given.template_name, "the chat template's name");
  if (const std::string device = string_of(given.device, "the device's name"); !device.empty()) result.device = device;
  if (given.beside != nullptr) result.beside = &check_handle(given.beside, "model beside it").model;
  if (given.progress != nullptr) {
    result.progress = [call = given.progress, user = given.user](std::uint64_t done, std::uint64_t total) {
      return call(done, total, user) != 0;
    };
  }
  if (given.warning != nullptr) {
    result.warning = [call = given.warning, user = given.user](std::string_view line) { call(text_of(line), user); };
  }
  return result;
}

GenerateOptions generate_options_of(const quarrel_generate_options* options) {
  quarrel_generate_options defaults;
  quarrel_generate_options_init(&defaults, sizeof defaults);
  const quarrel_generate_options given = read_struct(options, defaults, "the generate options");
  check_reserved(given.reserved, "the generate options");
  GenerateOptions result{.max_tokens = given.max_tokens,
                         .temperature = given.temperature,
                         .top_k = given.top_k,
                         .top_p = given.top_p,
                         .min_p = given.min_p,
                         .repeat_penalty = given.repeat_penalty,
                         .presence_penalty = given.presence_penalty,
                         .frequency_penalty = given.frequency_penalty,
                         .penalty_window = given.penalty_window,
                         .logprobs = given.logprobs,
                         .timeout = std::chrono::milliseconds(given.timeout_ms),
                         .answers = given.answers,
                         .best_of = given.best_of,
                         .penalty_scope = enum_of(given.penalty_scope, PenaltyScope::recent, "the penalties' scope"),
                         .typical_p = given.typical_p,
                         .mirostat = given.mirostat != 0,
                         .mirostat_tau = given.mirostat_tau,
                         .mirostat_eta = given.mirostat_eta,
                         .mask = mask_of(given.mask, given.mask_user),
                         .show_special = given.show_special != 0,
                         .prompt_logprobs = given.prompt_logprobs != 0,
                         .overflow = enum_of(given.overflow, Overflow::shift, "the overflow policy"),
                         .keep = given.keep,
                         .priority = enum_of(given.priority, Priority::batch, "the priority"),
                         .key = given.key,
                         .salt = given.salt,
                         .use_cache = given.use_cache != 0,
                         .pinned = given.pinned};
  if (given.has_seed != 0) result.seed = given.seed;
  for (const quarrel_text& stop : check_array(given.stop, given.stop_count, "the list of stop strings")) {
    result.stop.push_back(string_of(stop, "a stop string"));
  }
  if (given.has_stop_tokens != 0) {
    const auto tokens = check_array(given.stop_tokens, given.stop_token_count, "the list of stop tokens");
    result.stop_tokens.emplace(tokens.begin(), tokens.end());
  }
  for (const quarrel_bias& bias : check_array(given.logit_bias, given.logit_bias_count, "the list of biases")) {
    result.logit_bias.emplace_back(bias.token, bias.bias);
  }
  if (given.cancel != nullptr) result.cancel = check_handle(given.cancel, "cancel handle").token;
  return result;
}

quarrel_generate_options c_options_of(const GenerateOptions& options) {
  quarrel_generate_options result{};
  result.size = sizeof result;
  result.max_tokens = options.max_tokens;
  result.temperature = options.temperature;
  result.top_k = options.top_k;
  result.top_p = options.top_p;
  result.min_p = options.min_p;
  result.repeat_penalty = options.repeat_penalty;
  result.presence_penalty = options.presence_penalty;
  result.frequency_penalty = options.frequency_penalty;
  result.penalty_window = options.penalty_window;
  result.answers = options.answers;
  result.penalty_scope = static_cast<std::int32_t>(options.penalty_scope);
  result.typical_p = options.typical_p;
  result.mirostat = options.mirostat ? 1 : 0;
  result.mirostat_tau = options.mirostat_tau;
  result.mirostat_eta = options.mirostat_eta;
  result.overflow = static_cast<std::int32_t>(options.overflow);
  result.priority = static_cast<std::int32_t>(options.priority);
  result.use_cache = options.use_cache ? 1 : 0;
  if (options.seed) {
    result.seed = *options.seed;
    result.has_seed = 1;
  }
  return result;
}

EmbedOptions embed_options_of(const quarrel_embed_options* options) {
  quarrel_embed_options defaults;
  quarrel_embed_options_init(&defaults, sizeof defaults);
  const quarrel_embed_options given = read_struct(options, defaults, "the embed options");
  EmbedOptions result{.pooling = optional_enum_of(given.pooling, Pooling::rank, "the pooling"),
                      .normalize = given.no_normalize == 0,
                      .priority = enum_of(given.priority, Priority::batch, "the priority"),
                      .key = given.key,
                      .timeout = std::chrono::milliseconds(given.timeout_ms)};
  if (given.dimensions != 0) result.dimensions = given.dimensions;
  if (given.cancel != nullptr) result.cancel = check_handle(given.cancel, "cancel handle").token;
  return result;
}

std::vector<Message> messages_of(const quarrel_message* messages, std::size_t count) {
  const auto list = check_array(messages, count, "the list of messages");
  std::vector<Message> result;
  result.reserve(list.size());
  for (const quarrel_message& message : list) {
    result.push_back({.role = string_of(message.role, "a message's role"),
                      .content = string_of(message.content, "a message's content")});
  }
  return result;
}

Chat chat_of(const quarrel_chat_input* chat) {
  check_pointer(chat, "the conversation");
  const quarrel_chat_input given = read_struct(chat, {}, "the conversation");
  Chat result{.messages = messages_of(given.messages, given.message_count),
              .tools = string_of(given.tools, "the tools"),
              .arguments = string_of(given.arguments, "the template's arguments"),
              .add_generation_prompt = given.no_generation_prompt == 0};
  if (given.more == nullptr) return result;
  for (std::size_t i = 0; i < result.messages.size(); ++i) {
    result.messages[i].more = string_of(given.more[i], "a message's further fields");
  }
  return result;
}

Prompt prompt_of(const quarrel_prompt* prompt) {
  check_pointer(prompt, "the prompt");
  const quarrel_prompt given = read_struct(prompt, {}, "the prompt");
  switch (given.kind) {
    case QUARREL_PROMPT_TEXT: return view_of(given.text, "the prompt");
    case QUARREL_PROMPT_TOKENS: return check_array(given.tokens.tokens, given.tokens.count, "the prompt");
    case QUARREL_PROMPT_CHAT: return chat_of(given.chat);
    default: refuse(ErrorKind::usage, "the prompt has no meaning of kind {}", given.kind);
  }
}

}  // namespace quarrel::api

namespace api = quarrel::api;

extern "C" {

quarrel_status quarrel_load_options_init(quarrel_load_options* options, size_t size) {
  const api::LoadOptions from;
  quarrel_load_options defaults{};
  defaults.sequences = from.sequences;
  defaults.batch_rows = from.batch_rows;
  defaults.repack = 1;
  defaults.prefix_cache = 1;
  defaults.queue_limit = from.queue_limit;
  defaults.queue_token_limit = from.queue_token_limit;
  return api::init_struct(options, size, defaults);
}

quarrel_status quarrel_generate_options_init(quarrel_generate_options* options, size_t size) {
  return api::init_struct(options, size, api::c_options_of({}));
}

quarrel_status quarrel_embed_options_init(quarrel_embed_options* options, size_t size) {
  quarrel_embed_options defaults{};
  defaults.priority = static_cast<std::int32_t>(api::EmbedOptions{}.priority);
  return api::init_struct(options, size, defaults);
}

}  // extern "C"

// The numbers of the two interfaces are the same.
static_assert(QUARREL_PRIORITY_INTERACTIVE == static_cast<int>(api::Priority::interactive));
static_assert(QUARREL_PRIORITY_NORMAL == static_cast<int>(api::Priority::normal));
static_assert(QUARREL_PRIORITY_BATCH == static_cast<int>(api::Priority::batch));
static_assert(QUARREL_OVERFLOW_REFUSE == static_cast<int>(api::Overflow::refuse));
static_assert(QUARREL_OVERFLOW_STOP == static_cast<int>(api::Overflow::stop));
static_assert(QUARREL_OVERFLOW_SHIFT == static_cast<int>(api::Overflow::shift));
static_assert(QUARREL_PENALTY_ANSWER == static_cast<int>(api::PenaltyScope::answer));
static_assert(QUARREL_PENALTY_RECENT == static_cast<int>(api::PenaltyScope::recent));
static_assert(QUARREL_KV_F32 == 1 + static_cast<int>(api::KvType::f32));
static_assert(QUARREL_KV_F16 == 1 + static_cast<int>(api::KvType::f16));
static_assert(QUARREL_ACTIVATIONS_AUTOMATIC == static_cast<int>(api::Activations::automatic));
static_assert(QUARREL_ACTIVATIONS_INT8_SPLIT == static_cast<int>(api::Activations::int8_split));
static_assert(QUARREL_ACTIVATIONS_INT8 == static_cast<int>(api::Activations::int8));
static_assert(QUARREL_ACTIVATIONS_F32 == static_cast<int>(api::Activations::f32));
static_assert(QUARREL_ACTIVATIONS_F16 == static_cast<int>(api::Activations::f16));
static_assert(QUARREL_POOLING_NONE == 1 + static_cast<int>(api::Pooling::none));
static_assert(QUARREL_POOLING_MEAN == 1 + static_cast<int>(api::Pooling::mean));
static_assert(QUARREL_POOLING_CLS == 1 + static_cast<int>(api::Pooling::cls));
static_assert(QUARREL_POOLING_LAST == 1 + static_cast<int>(api::Pooling::last));
static_assert(QUARREL_POOLING_RANK == 1 + static_cast<int>(api::Pooling::rank));
