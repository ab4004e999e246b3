#include "server/openai_request.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "backend/sampling.h"
#include "server/question.h"

namespace quarrel {
namespace {

constexpr double kMostAnswers = 32;
constexpr std::size_t kMostBiases = 1024;

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
    request.logit_bias.emplace_back(id, as_float(bias));
  }
}

void read_stream_options(const Json& value, OpenAiRequest& request) {
  if (!value.is_object()) throw invalid_field("stream_options", "'stream_options' must be an object");
  static constexpr std::array<Field<OpenAiRequest>, 2> kFields = {{
      {.name = "include_usage",
       .kind = FieldKind::boolean,
       .read = [](const Json& v, OpenAiRequest& r) { r.include_usage = as_flag(v); }},
      {.name = "include_obfuscation", .kind = FieldKind::no_effect},
  }};
  read_fields<OpenAiRequest>(value, kFields, request);
}

void read_messages(const Json& value, OpenAiRequest& request) { request.messages = read_conversation(value); }

// A string, or ids; a list of one such thing is as good as that thing.
void read_prompt(const Json& value, OpenAiRequest& request) {
  const Json& only = value.is_array() && value.size() == 1 && !value.front().is_number() ? value.front() : value;
  if (only.is_string()) {
    request.prompt = only.get<std::string>();
  } else if (only.is_array() && !only.empty() && only.front().is_number()) {
    request.prompt = read_token_ids(only, "prompt");
  } else {
    throw invalid_field("prompt", "'prompt' must be one string or one list of token ids");
  }
}

using ChatField = Field<OpenAiRequest>;

// Both endpoints have these.
#define QUARREL_SET(member, convert) [](const Json& v, OpenAiRequest& r) { r.member = convert(v); }
constexpr std::array kSharedFields = {
    ChatField{.name = "model", .kind = FieldKind::text, .read = QUARREL_SET(model, as_text)},
    ChatField{.name = "stream", .kind = FieldKind::boolean, .read = QUARREL_SET(stream, as_flag)},
    ChatField{.name = "stream_options", .read = read_stream_options},
    ChatField{.name = "max_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(options.max_tokens, as_integer)},
    ChatField{.name = "temperature",
              .kind = FieldKind::number,
              .least = 0,
              .most = 2,
              .read = QUARREL_SET(options.temperature, as_float)},
    ChatField{.name = "top_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .read = QUARREL_SET(options.top_p, as_float)},
    ChatField{.name = "top_k",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMostTokens,
              .read = QUARREL_SET(options.top_k, as_integer)},
    ChatField{.name = "min_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .read = QUARREL_SET(options.min_p, as_float)},
    ChatField{.name = "typical_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .read = QUARREL_SET(options.typical_p, as_float)},
    ChatField{.name = "presence_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .read = QUARREL_SET(options.presence_penalty, as_float)},
    ChatField{.name = "frequency_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .read = QUARREL_SET(options.frequency_penalty, as_float)},
    ChatField{.name = "repeat_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .read = QUARREL_SET(options.repeat_penalty, as_float)},
    ChatField{.name = "repetition_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .read = QUARREL_SET(options.repeat_penalty, as_float)},
    ChatField{.name = "repeat_last_n",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(options.penalty_window, as_integer)},
    ChatField{.name = "seed",
              .kind = FieldKind::integer,
              .least = -kMostSeed,
              .most = kMostSeed,
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.options.seed = static_cast<std::uint64_t>(static_cast<std::int64_t>(v.get<double>()));
                  }},
    ChatField{.name = "stop", .read = QUARREL_SET(options.stop, read_stop_strings)},
    ChatField{.name = "n",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .read = QUARREL_SET(ask.answers, as_integer)},
    ChatField{.name = "logit_bias", .read = read_bias},
    ChatField{.name = "user", .kind = FieldKind::no_effect},
    ChatField{.name = "metadata", .kind = FieldKind::no_effect},
    ChatField{.name = "store", .kind = FieldKind::no_effect},
    ChatField{.name = "service_tier", .kind = FieldKind::no_effect},
    ChatField{.name = "safety_identifier", .kind = FieldKind::no_effect},
    ChatField{.name = "prompt_cache_key", .kind = FieldKind::no_effect},
    ChatField{.name = "prompt_cache_options", .kind = FieldKind::no_effect},
    ChatField{.name = "prompt_cache_retention", .kind = FieldKind::no_effect},
};

constexpr std::array kChatFields = {
    ChatField{.name = "messages", .read = read_messages},
    ChatField{.name = "max_completion_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .read = QUARREL_SET(max_completion_tokens, as_integer)},
    ChatField{.name = "logprobs", .kind = FieldKind::boolean, .read = QUARREL_SET(logprobs, as_flag)},
    ChatField{.name = "top_logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .read = QUARREL_SET(ask.top, as_integer)},
    ChatField{.name = "chat_template_kwargs",
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    if (!v.is_object()) throw invalid_field("chat_template_kwargs", "it must be an object");
                    r.template_arguments = v;
                  }},
    ChatField{.name = "tools", .kind = FieldKind::refused, .help = kNotOfferedYet},
    ChatField{.name = "tool_choice", .kind = FieldKind::refused, .help = kNotOfferedYet},
    ChatField{.name = "parallel_tool_calls", .kind = FieldKind::no_effect},
    ChatField{.name = "functions", .kind = FieldKind::refused, .help = kNotOfferedYet},
    ChatField{.name = "function_call", .kind = FieldKind::refused, .help = kNotOfferedYet},
    ChatField{.name = "reasoning_effort", .kind = FieldKind::refused, .help = kNotOfferedYet},
    ChatField{.name = "modalities", .kind = FieldKind::refused, .help = "answers are text"},
    ChatField{.name = "audio", .kind = FieldKind::refused, .help = "answers are text"},
    ChatField{.name = "prediction", .kind = FieldKind::refused, .help = "answers are not predicted from outside"},
    ChatField{
        .name = "verbosity", .kind = FieldKind::refused, .help = "say in the prompt how long the answer is to be"},
    ChatField{.name = "moderation", .kind = FieldKind::refused, .help = "nothing is moderated here"},
    ChatField{.name = "web_search_options", .kind = FieldKind::refused, .help = "nothing is searched for"},
    ChatField{.name = "response_format",
              .read =
                  [](const Json& v, OpenAiRequest&) {
                    const bool text = v.is_object() && v.contains("type") && v["type"] == "text";
                    if (!text && !is_neutral(v)) {
                      throw unsupported_field("response_format", fmt::format("'response_format' other than text is not "
                                                                             "supported: {}",
                                                                             kNotOfferedYet));
                    }
                  }},
};

constexpr std::array kCompletionFields = {
    ChatField{.name = "prompt", .read = read_prompt},
    ChatField{.name = "echo", .kind = FieldKind::boolean, .read = QUARREL_SET(echo, as_flag)},
    ChatField{.name = "logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.logprobs = true;
                    r.ask.top = as_integer(v);
                  }},
    ChatField{.name = "best_of",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .read = QUARREL_SET(ask.best_of, as_integer)},
    ChatField{.name = "suffix", .kind = FieldKind::refused, .help = "texts are continued, not filled in"},
};
#undef QUARREL_SET

}  // namespace

OpenAiRequest read_chat_request(const Json& body) {
  OpenAiRequest request = read_request(body, kSharedFields, kChatFields);
  if (request.messages.is_null()) throw invalid_field("messages", "'messages' is missing");
  if (request.ask.top > 0 && !request.logprobs) {
    throw invalid_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  return request;
}

OpenAiRequest read_completion_request(const Json& body) {
  OpenAiRequest request = read_request(body, kSharedFields, kCompletionFields);
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

Ask ask_of(const OpenAiRequest& request, const LoadedModel& model) {
  Ask ask = request.ask;
  if (!request.messages.is_null()) {
    ask.prompt = ChatInput{.messages = request.messages, .arguments = request.template_arguments};
  } else if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    ask.prompt = *text;
  } else {
    ask.prompt = std::get<std::vector<TokenId>>(request.prompt);
  }
  RecommendedSampling options = request.options;
  const bool penalises = options.presence_penalty || options.frequency_penalty;
  if (penalises) {
    options.presence_penalty = options.presence_penalty.value_or(0.0f);
    options.frequency_penalty = options.frequency_penalty.value_or(0.0f);
  }
  if (request.max_completion_tokens) options.max_tokens = request.max_completion_tokens;
  apply_options(ask, options, model);
  if (penalises) ask.sampling.penalty_scope = PenaltyScope::answer;  // OpenAI's meaning
  ask.sampling.logit_bias = request.logit_bias;
  return ask;
}

namespace {

void read_input(const Json& value, OpenAiEmbeddingRequest& request) {
  if (value.is_string()) {
    request.inputs.emplace_back(value.get<std::string>());
  } else if (value.is_array() && !value.empty() && value.front().is_number()) {
    request.inputs.emplace_back(read_token_ids(value, "input"));
  } else if (value.is_array() && !value.empty() && value.size() <= kMostInputs) {
    for (const Json& each : value) {
      if (each.is_string()) {
        request.inputs.emplace_back(each.get<std::string>());
      } else if (each.is_array()) {
        request.inputs.emplace_back(read_token_ids(each, "input"));
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
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.model = as_text(v); }},
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
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.dimensions = as_integer(v); }},
      EmbeddingField{.name = "truncate",
                     .kind = FieldKind::boolean,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.truncate = as_flag(v); }},
      EmbeddingField{.name = "normalize",
                     .kind = FieldKind::boolean,
                     .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.normalize = as_flag(v); }},
      EmbeddingField{.name = "user", .kind = FieldKind::no_effect},
  };
  OpenAiEmbeddingRequest request;
  read_fields<OpenAiEmbeddingRequest>(body, kFields, request);
  if (request.inputs.empty()) throw invalid_field("input", "'input' is missing");
  return request;
}

}  // namespace quarrel
