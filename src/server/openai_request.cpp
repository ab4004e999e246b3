#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "backend/sampling.h"

namespace quarrel {
namespace {

constexpr double kMostTokens = 1 << 30;
constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostAnswers = 32;
constexpr std::size_t kMostInputs = 2048;
constexpr std::size_t kMostBiases = 1024;

constexpr std::string_view kLater = "structured output, tools and reasoning are not offered yet";

float number(const Json& value) { return static_cast<float>(value.get<double>()); }
std::int32_t whole(const Json& value) { return static_cast<std::int32_t>(value.get<double>()); }

// A string or a list of them.
std::vector<std::string> strings(const Json& value, const char* field, std::size_t most) {
  std::vector<std::string> texts;
  if (value.is_string()) {
    texts.push_back(value.get<std::string>());
  } else if (value.is_array() && value.size() <= most) {
    for (const Json& each : value) {
      if (!each.is_string())
        throw invalid_field(field, fmt::format("'{}' must be a string or a list of strings", field));
      texts.push_back(each.get<std::string>());
    }
  } else {
    throw invalid_field(field, fmt::format("'{}' must be a string or a list of at most {} strings", field, most));
  }
  return texts;
}

void read_stop(const Json& value, OpenAiRequest& request) {
  request.ask.stop = strings(value, "stop", kMostStops);
  if (std::ranges::any_of(request.ask.stop, &std::string::empty)) {
    throw invalid_field("stop", "a stop string must not be empty");
  }
}

void read_bias(const Json& value, OpenAiRequest& request) {
  if (!value.is_object() || value.size() > kMostBiases) {
    throw invalid_field("logit_bias",
                        fmt::format("'logit_bias' must be an object of at most {} token ids", kMostBiases));
  }
  for (const auto& [name, bias] : value.items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || !bias.is_number() ||
        !(bias.get<double>() >= -100.0 && bias.get<double>() <= 100.0)) {
      throw invalid_field("logit_bias", "'logit_bias' maps token ids to numbers between -100 and 100");
    }
    request.logit_bias.emplace_back(id, number(bias));
  }
}

void read_stream_options(const Json& value, OpenAiRequest& request) {
  if (!value.is_object()) throw invalid_field("stream_options", "'stream_options' must be an object");
  static constexpr std::array<Field<OpenAiRequest>, 2> kFields = {{
      {.name = "include_usage",
       .kind = FieldKind::boolean,
       .read = [](const Json& v, OpenAiRequest& r) { r.include_usage = v.get<bool>(); }},
      {.name = "include_obfuscation", .kind = FieldKind::no_effect},
  }};
  read_fields<OpenAiRequest>(value, kFields, request);
}

// Text parts are joined; templates know strings.
std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw invalid_field("messages", "only parts of type 'text' are understood in a message's content");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

void read_messages(const Json& value, OpenAiRequest& request) { request.messages = read_conversation(value); }

std::vector<TokenId> token_ids(const Json& value, const char* field) {
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<TokenId>::max()) {
      throw invalid_field(field, fmt::format("'{}' has something that is no token id", field));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// A string, or ids; a list of one such thing is as good as that thing.
void read_prompt(const Json& value, OpenAiRequest& request) {
  const Json& only = value.is_array() && value.size() == 1 && !value.front().is_number() ? value.front() : value;
  if (only.is_string()) {
    request.prompt = only.get<std::string>();
  } else if (only.is_array() && !only.empty() && only.front().is_number()) {
    request.prompt = token_ids(only, "prompt");
  } else {
    throw invalid_field("prompt", "'prompt' must be one string or one list of token ids");
  }
}

using ChatField = Field<OpenAiRequest>;

// Both endpoints have these.
#define QUARREL_SET(member, convert) [](const Json& v, OpenAiRequest& r) { r.member = convert(v); }
constexpr std::array kSharedFields = {
    ChatField{.name = "model", .kind = FieldKind::text, .read = QUARREL_SET(model, std::string)},
    ChatField{.name = "stream",
              .kind = FieldKind::boolean,
              .read = [](const Json& v, OpenAiRequest& r) { r.stream = v.get<bool>(); }},
    ChatField{.name = "stream_options", .read = read_stream_options},
    ChatField{.name = "max_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(max_tokens, whole)},
    ChatField{.name = "temperature",
              .kind = FieldKind::number,
              .least = 0,
              .most = 2,
              .read = QUARREL_SET(temperature, number)},
    ChatField{.name = "top_p", .kind = FieldKind::number, .least = 0, .most = 1, .read = QUARREL_SET(top_p, number)},
    ChatField{.name = "top_k",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMostTokens,
              .read = QUARREL_SET(top_k, whole)},
    ChatField{.name = "min_p", .kind = FieldKind::number, .least = 0, .most = 1, .read = QUARREL_SET(min_p, number)},
    ChatField{
        .name = "typical_p", .kind = FieldKind::number, .least = 0, .most = 1, .read = QUARREL_SET(typical_p, number)},
    ChatField{.name = "presence_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .read = QUARREL_SET(presence_penalty, number)},
    ChatField{.name = "frequency_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .read = QUARREL_SET(frequency_penalty, number)},
    ChatField{.name = "repeat_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .read = QUARREL_SET(repeat_penalty, number)},
    ChatField{.name = "repetition_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .read = QUARREL_SET(repeat_penalty, number)},
    ChatField{.name = "repeat_last_n",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(repeat_last_n, whole)},
    ChatField{.name = "seed",
              .kind = FieldKind::integer,
              .least = -9007199254740992.0,
              .most = 9007199254740992.0,
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.ask.seed = static_cast<std::uint64_t>(static_cast<std::int64_t>(v.get<double>()));
                  }},
    ChatField{.name = "stop", .read = read_stop},
    ChatField{.name = "n",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .read = QUARREL_SET(ask.answers, whole)},
    ChatField{.name = "logit_bias", .read = read_bias},
    ChatField{.name = "user", .kind = FieldKind::no_effect},
    ChatField{.name = "metadata", .kind = FieldKind::no_effect},
    ChatField{.name = "store", .kind = FieldKind::no_effect},
    ChatField{.name = "service_tier", .kind = FieldKind::no_effect},
    ChatField{.name = "safety_identifier", .kind = FieldKind::no_effect},
    ChatField{.name = "prompt_cache_key", .kind = FieldKind::no_effect},
};

constexpr std::array kChatFields = {
    ChatField{.name = "messages", .read = read_messages},
    ChatField{.name = "max_completion_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(max_completion_tokens, whole)},
    ChatField{.name = "logprobs",
              .kind = FieldKind::boolean,
              .read = [](const Json& v, OpenAiRequest& r) { r.logprobs = v.get<bool>(); }},
    ChatField{.name = "top_logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .read = QUARREL_SET(ask.top, whole)},
    ChatField{.name = "chat_template_kwargs",
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    if (!v.is_object()) throw invalid_field("chat_template_kwargs", "it must be an object");
                    r.template_arguments = v;
                  }},
    ChatField{.name = "tools", .kind = FieldKind::refused, .help = kLater},
    ChatField{.name = "tool_choice", .kind = FieldKind::refused, .help = kLater},
    ChatField{.name = "parallel_tool_calls", .kind = FieldKind::no_effect},
    ChatField{.name = "functions", .kind = FieldKind::refused, .help = kLater},
    ChatField{.name = "function_call", .kind = FieldKind::refused, .help = kLater},
    ChatField{.name = "reasoning_effort", .kind = FieldKind::refused, .help = kLater},
    ChatField{.name = "modalities", .kind = FieldKind::refused, .help = "answers are text"},
    ChatField{.name = "audio", .kind = FieldKind::refused, .help = "answers are text"},
    ChatField{.name = "prediction", .kind = FieldKind::refused, .help = "answers are not predicted from outside"},
    ChatField{.name = "response_format",
              .read =
                  [](const Json& v, OpenAiRequest&) {
                    const bool text = v.is_object() && v.contains("type") && v["type"] == "text";
                    if (!text && !is_neutral(v)) {
                      throw unsupported_field("response_format", fmt::format("'response_format' other than text is not "
                                                                             "supported: {}",
                                                                             kLater));
                    }
                  }},
};

constexpr std::array kCompletionFields = {
    ChatField{.name = "prompt", .read = read_prompt},
    ChatField{.name = "echo",
              .kind = FieldKind::boolean,
              .read = [](const Json& v, OpenAiRequest& r) { r.echo = v.get<bool>(); }},
    ChatField{.name = "logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.logprobs = true;
                    r.ask.top = whole(v);
                  }},
    ChatField{.name = "best_of",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .read = QUARREL_SET(ask.best_of, whole)},
    ChatField{.name = "suffix", .kind = FieldKind::refused, .help = "texts are continued, not filled in"},
};
#undef QUARREL_SET

template <std::size_t N>
OpenAiRequest read_request(const Json& body, const std::array<ChatField, N>& own) {
  std::vector<ChatField> fields(kSharedFields.begin(), kSharedFields.end());
  fields.insert(fields.end(), own.begin(), own.end());
  OpenAiRequest request;
  read_fields<OpenAiRequest>(body, fields, request);
  return request;
}

template <typename T>
void set(T& member, const std::optional<T>& value) {
  if (value) member = *value;
}

}  // namespace

Json read_conversation(const Json& value) {
  if (!value.is_array() || value.empty()) throw invalid_field("messages", "'messages' must be a list with a message");
  Json messages = Json::array();
  for (const Json& each : value) {
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string()) {
      throw invalid_field("messages", "each message is an object with a 'role'");
    }
    std::string role = each["role"].get<std::string>();
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      throw invalid_field("messages", "a message's role is system, developer, user, assistant or tool");
    }
    Json message = each;
    message["role"] = role;
    const Json content = each.contains("content") ? each["content"] : Json();
    if (content.is_array()) {
      message["content"] = joined_parts(content);
    } else if (content.is_null() && role == "assistant") {
      message["content"] = "";
    } else if (!content.is_string()) {
      throw invalid_field("messages", "a message's content is a string or a list of text parts");
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

OpenAiRequest read_chat_request(const Json& body) {
  OpenAiRequest request = read_request(body, kChatFields);
  if (request.messages.is_null()) throw invalid_field("messages", "'messages' is missing");
  if (request.ask.top > 0 && !request.logprobs) {
    throw invalid_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  return request;
}

OpenAiRequest read_completion_request(const Json& body) {
  OpenAiRequest request = read_request(body, kCompletionFields);
  if (!body.contains("prompt") || body["prompt"].is_null()) throw invalid_field("prompt", "'prompt' is missing");
  if (request.ask.best_of != 0 && request.ask.best_of < request.ask.answers) {
    throw invalid_field("best_of", "'best_of' must not be less than 'n'");
  }
  if (request.ask.best_of > request.ask.answers && request.stream) {
    throw invalid_field("best_of", "the best of several cannot be streamed");
  }
  if (request.echo && request.logprobs) {
    throw unsupported_field("echo", "'echo' together with 'logprobs' is not supported");
  }
  return request;
}

SamplingParams default_sampling(const LoadedModel& model) { return model.recommended().over(default_sampling()); }

Ask ask_of(const OpenAiRequest& request, const LoadedModel& model) {
  Ask ask = request.ask;
  if (!request.messages.is_null()) {
    ask.prompt = ChatInput{.messages = request.messages, .arguments = request.template_arguments};
  } else if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    ask.prompt = *text;
  } else {
    ask.prompt = std::get<std::vector<TokenId>>(request.prompt);
  }
  ask.sampling = default_sampling(model);
  set(ask.sampling.temperature, request.temperature);
  set(ask.sampling.top_p, request.top_p);
  set(ask.sampling.min_p, request.min_p);
  set(ask.sampling.typical_p, request.typical_p);
  set(ask.sampling.repeat_penalty, request.repeat_penalty);
  set(ask.sampling.top_k, request.top_k);
  set(ask.sampling.penalty_window, request.repeat_last_n);
  if (request.presence_penalty || request.frequency_penalty) {
    ask.sampling.penalty_scope = PenaltyScope::answer;  // OpenAI's meaning
    ask.sampling.presence_penalty = request.presence_penalty.value_or(0.0f);
    ask.sampling.frequency_penalty = request.frequency_penalty.value_or(0.0f);
  }
  ask.sampling.logit_bias = request.logit_bias;
  const auto& limit = request.max_completion_tokens ? request.max_completion_tokens : request.max_tokens;
  ask.max_tokens = limit ? *limit : model.recommended().max_tokens.value_or(-1);
  if (request.ask.stop.empty()) ask.stop = model.recommended().stop;
  if (request.ask.seed == std::nullopt) ask.seed = model.recommended().seed;
  return ask;
}

namespace {

void read_input(const Json& value, OpenAiEmbeddingRequest& request) {
  if (value.is_string()) {
    request.inputs.emplace_back(value.get<std::string>());
  } else if (value.is_array() && !value.empty() && value.front().is_number()) {
    request.inputs.emplace_back(token_ids(value, "input"));
  } else if (value.is_array() && !value.empty() && value.size() <= kMostInputs) {
    for (const Json& each : value) {
      if (each.is_string()) {
        request.inputs.emplace_back(each.get<std::string>());
      } else if (each.is_array()) {
        request.inputs.emplace_back(token_ids(each, "input"));
      } else {
        throw invalid_field("input", "'input' must be texts or lists of token ids");
      }
    }
  } else {
    throw invalid_field(
        "input",
        fmt::format("'input' must be a text, a list of token ids, or a list of 1 to {} of these", kMostInputs));
  }
}

}  // namespace

OpenAiEmbeddingRequest read_embedding_request(const Json& body) {
  using EmbeddingField = Field<OpenAiEmbeddingRequest>;
  static constexpr std::array kFields = {
      EmbeddingField{.name = "model",
                     .kind = FieldKind::text,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.model = v.get<std::string>(); }},
      EmbeddingField{.name = "input", .read = read_input},
      EmbeddingField{.name = "encoding_format",
                     .kind = FieldKind::text,
                     .read =
                         [](const Json& v, OpenAiEmbeddingRequest& r) {
                           if (v != "float" && v != "base64") {
                             throw invalid_field("encoding_format", "'encoding_format' is float or base64");
                           }
                           r.base64 = v == "base64";
                         }},
      EmbeddingField{.name = "dimensions",
                     .kind = FieldKind::integer,
                     .least = 1,
                     .most = 1 << 20,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.dimensions = whole(v); }},
      EmbeddingField{.name = "truncate",
                     .kind = FieldKind::boolean,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.truncate = v.get<bool>(); }},
      EmbeddingField{.name = "normalize",
                     .kind = FieldKind::boolean,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.normalize = v.get<bool>(); }},
      EmbeddingField{.name = "user", .kind = FieldKind::no_effect},
  };
  OpenAiEmbeddingRequest request;
  read_fields<OpenAiEmbeddingRequest>(body, kFields, request);
  if (request.inputs.empty()) throw invalid_field("input", "'input' is missing");
  return request;
}

}  // namespace quarrel
