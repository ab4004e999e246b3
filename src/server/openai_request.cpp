#include "server/openai_request.h"

#include <fmt/format.h>

#include <array>

#include "backend/sampling.h"
#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

constexpr double kMostAnswers = 16;            // what a model computes for one prompt
constexpr std::size_t kMostCompletions = 128;  // for all prompts of a request

constexpr std::array<Field<OpenAiRequest>, 2> kStreamOptions = {{
    {.name = "include_usage",
     .kind = FieldKind::boolean,
     .help = "the last chunk tells how many tokens there were",
     .read = [](const Json& v, OpenAiRequest& r) { r.include_usage = as_flag(v); }},
    {.name = "include_obfuscation", .kind = FieldKind::no_effect},
}};

void read_stream_options(const Json& value, OpenAiRequest& request) {
  if (!value.is_object()) throw invalid_field("stream_options", "'stream_options' must be an object");
  read_fields<OpenAiRequest>(value, kStreamOptions, request);
}

Json stream_options_schema() { return schema::request_of<OpenAiRequest>("StreamOptions", {}, kStreamOptions); }

// A text, its ids, or a list of these.
Json prompt_schema() {
  Json several = schema::list(schema::either({schema::text(), token_ids_schema()}));
  several["minItems"] = 1;
  several["maxItems"] = kMostCompletions;
  return schema::either({schema::text(), token_ids_schema(), several});
}

void read_messages(const Json& value, OpenAiRequest& request) { request.messages = read_conversation(value); }

void add_prompt(const Json& value, OpenAiRequest& request) {
  if (value.is_string()) {
    request.prompts.emplace_back(value.get<std::string>());
  } else if (value.is_array() && !value.empty()) {
    request.prompts.emplace_back(read_token_ids(value, "prompt"));
  } else {
    throw invalid_field("prompt", "'prompt' must be a string, a list of token ids, or a list of these");
  }
}

// A string, ids, or a list of such.
void read_prompts(const Json& value, OpenAiRequest& request) {
  const bool several = value.is_array() && !value.empty() && !value.front().is_number();
  if (!several) return add_prompt(value, request);
  if (value.size() > kMostCompletions) {
    throw invalid_field("prompt",
                        fmt::format("'prompt' has {} prompts; {} are the most", value.size(), kMostCompletions));
  }
  for (const Json& each : value) add_prompt(each, request);
}

using ChatField = Field<OpenAiRequest>;

// Both endpoints have these.
#define QUARREL_SET(member, convert) [](const Json& v, OpenAiRequest& r) { r.member = convert(v); }
constexpr std::array kSharedFields = {
    ChatField{.name = "model",
              .kind = FieldKind::text,
              .help = "a name that GET /v1/models lists; without it, the server's default",
              .read = QUARREL_SET(model, as_text)},
    ChatField{.name = "stream",
              .kind = FieldKind::boolean,
              .help = "the answer comes as server-sent events",
              .read = QUARREL_SET(stream, as_flag)},
    ChatField{
        .name = "stream_options", .help = "of a stream", .read = read_stream_options, .schema = stream_options_schema},
    ChatField{.name = "max_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .help = "the answer's length; -1: until the context is full",
              .read = QUARREL_SET(options.max_tokens, as_integer)},
    ChatField{.name = "temperature",
              .kind = FieldKind::number,
              .least = 0,
              .most = 2,
              .help = "how freely answers are drawn; 0: always the likeliest token",
              .read = QUARREL_SET(options.temperature, as_float)},
    ChatField{.name = "top_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .help = "draws from the likeliest tokens that together have this probability",
              .read = QUARREL_SET(options.top_p, as_float)},
    ChatField{.name = "top_k",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMostTokens,
              .help = "draws from this many of the likeliest tokens; 0: from all",
              .read = QUARREL_SET(options.top_k, as_integer)},
    ChatField{.name = "min_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .help = "leaves out tokens less likely than this share of the likeliest one",
              .read = QUARREL_SET(options.min_p, as_float)},
    ChatField{.name = "typical_p",
              .kind = FieldKind::number,
              .least = 0,
              .most = 1,
              .help = "draws from the tokens whose surprise is nearest to the expected one, up to this probability",
              .read = QUARREL_SET(options.typical_p, as_float)},
    ChatField{.name = "presence_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .help = "makes tokens that have come less likely",
              .read = QUARREL_SET(options.presence_penalty, as_float)},
    ChatField{.name = "frequency_penalty",
              .kind = FieldKind::number,
              .least = -2,
              .most = 2,
              .help = "makes tokens less likely the oftener they have come",
              .read = QUARREL_SET(options.frequency_penalty, as_float)},
    ChatField{.name = "repeat_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .help = "makes tokens of the last `repeat_last_n` less likely; 1: not at all",
              .read = QUARREL_SET(options.repeat_penalty, as_float)},
    ChatField{.name = "repetition_penalty",
              .kind = FieldKind::number,
              .least = 0.01,
              .most = 10,
              .help = "another name of `repeat_penalty`",
              .read = QUARREL_SET(options.repeat_penalty, as_float)},
    ChatField{.name = "repeat_last_n",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .help = "how far the penalties look back; -1: over all",
              .read = QUARREL_SET(options.penalty_window, as_integer)},
    ChatField{.name = "seed",
              .kind = FieldKind::integer,
              .least = -kMostSeed,
              .most = kMostSeed,
              .help = "the same seed, the same answer",
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.options.seed = static_cast<std::uint64_t>(static_cast<std::int64_t>(v.get<double>()));
                  }},
    ChatField{.name = "stop",
              .help = "texts that end the answer before they come",
              .read = QUARREL_SET(options.stop, read_stop_strings),
              .schema = stop_strings_schema},
    ChatField{.name = "n",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .help = "how many answers",
              .read = QUARREL_SET(ask.answers, as_integer)},
    ChatField{.name = "logit_bias",
              .help = "token ids with what is added to their logits",
              .read = QUARREL_SET(logit_bias, read_logit_bias),
              .schema = logit_bias_schema},
};

constexpr std::array kChatFields = {
    ChatField{.name = "messages", .help = "the conversation", .read = read_messages, .schema = conversation_schema},
    ChatField{.name = "max_completion_tokens",
              .kind = FieldKind::integer,
              .least = -1,
              .most = kMostTokens,
              .help = "the same as `max_tokens`, and wins over it",
              .read = QUARREL_SET(max_completion_tokens, as_integer)},
    ChatField{.name = "logprobs",
              .kind = FieldKind::boolean,
              .help = "tells the probabilities of the answer's tokens",
              .read = QUARREL_SET(logprobs, as_flag)},
    ChatField{.name = "top_logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .help = "with `logprobs`: so many of the likeliest tokens at each place",
              .read = QUARREL_SET(ask.top, as_integer)},
    ChatField{.name = "chat_template_kwargs",
              .help = "variables for the model's chat template",
              .read = QUARREL_SET(template_arguments, read_template_arguments),
              .schema = [] { return Json{{"type", "object"}}; }},
    ChatField{.name = "retrieval",
              .help = "texts of a vector store that the question is asked with; the answer tells its `sources`",
              .read = QUARREL_SET(retrieval, read_retrieval),
              .schema = retrieval_schema},
    ChatField{.name = "response_format",
              .help = "only `{\"type\": \"text\"}`",
              .read = [](const Json& v, OpenAiRequest&) { check_response_format(v); },
              .schema = response_format_schema},
};

constexpr std::array kCompletionFields = {
    ChatField{.name = "prompt",
              .help = "the text to be continued, or its token ids; or a list of such, which are answered in order",
              .read = read_prompts,
              .schema = prompt_schema},
    ChatField{.name = "echo",
              .kind = FieldKind::boolean,
              .help = "the answer begins with the prompt",
              .read = QUARREL_SET(echo, as_flag)},
    ChatField{.name = "logprobs",
              .kind = FieldKind::integer,
              .least = 0,
              .most = kMaxTopTokens,
              .help = "tells the probabilities of the answer's tokens, and of so many of the likeliest at each place",
              .read =
                  [](const Json& v, OpenAiRequest& r) {
                    r.logprobs = true;
                    r.ask.top = as_integer(v);
                  },
              .is_default = [](const Json& v) { return v == false; }},  // as a chat has it
    ChatField{.name = "best_of",
              .kind = FieldKind::integer,
              .least = 1,
              .most = kMostAnswers,
              .help = "computes so many and gives the `n` likeliest of them",
              .read = QUARREL_SET(ask.best_of, as_integer)},
};
#undef QUARREL_SET

// Of both forms. What would mean nothing without a stream may be a stream that somebody forgot to ask for.
void check_shared_fields(const Json& body, const OpenAiRequest& request) {
  require_one_spelling(body, "repeat_penalty", "repetition_penalty");
  if (request.stream || !body.contains("stream_options") || body["stream_options"].is_null()) return;
  throw invalid_field("stream_options", "'stream_options' needs 'stream': true");
}

}  // namespace

OpenAiRequest read_chat_request(const Json& body) {
  OpenAiRequest request = read_request(body, kSharedFields, kChatFields);
  check_shared_fields(body, request);
  if (request.messages.is_null()) throw invalid_field("messages", "'messages' is missing");
  if (request.ask.top > 0 && !request.logprobs) {
    throw invalid_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  return request;
}

OpenAiRequest read_completion_request(const Json& body) {
  OpenAiRequest request = read_request(body, kSharedFields, kCompletionFields);
  check_shared_fields(body, request);
  if (!body.contains("prompt") || body["prompt"].is_null()) throw invalid_field("prompt", "'prompt' is missing");
  if (request.ask.best_of != 0 && request.ask.best_of < request.ask.answers) {
    throw invalid_field("best_of", "'best_of' must not be less than 'n'");
  }
  if (request.ask.best_of > request.ask.answers && request.stream) {
    throw invalid_field("best_of", "the best of several cannot be streamed");
  }
  if (request.echo && request.logprobs && request.stream) {
    throw unsupported_field("echo", "'echo' together with 'logprobs' cannot be streamed");
  }
  const std::size_t computed = request.prompts.size() * static_cast<std::size_t>(branch_count(request.ask));
  if (computed > kMostCompletions) {
    throw invalid_field("prompt",
                        fmt::format("{} answers would be computed; {} are the most", computed, kMostCompletions));
  }
  request.ask.prompt_scores = request.echo && request.logprobs;
  return request;
}

namespace {

decltype(Ask::prompt) ask_prompt(const std::variant<std::string, std::vector<TokenId>>& prompt) {
  return std::visit([](const auto& given) { return decltype(Ask::prompt)(given); }, prompt);
}

}  // namespace

Ask ask_of(const OpenAiRequest& request, const LoadedModel& model) {
  Ask ask = request.ask;
  if (!request.messages.is_null()) {
    ask.prompt =
        ChatInput{.messages = with_system(model.system(), request.messages), .arguments = request.template_arguments};
  } else {
    ask.prompt = ask_prompt(request.prompts.front());
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
  apply_logit_bias(ask, request.logit_bias, model);
  return ask;
}

std::vector<decltype(Ask::prompt)> further_prompts(const OpenAiRequest& request) {
  std::vector<decltype(Ask::prompt)> further;
  for (std::size_t i = 1; i < request.prompts.size(); ++i) further.push_back(ask_prompt(request.prompts[i]));
  return further;
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

Json input_schema() {
  Json several = schema::list(schema::either({schema::text(), token_ids_schema()}));
  several["minItems"] = 1;
  several["maxItems"] = kMostInputs;
  return schema::either({schema::text(), token_ids_schema(), several});
}

using EmbeddingField = Field<OpenAiEmbeddingRequest>;
constexpr std::array kEmbeddingFields = {
    EmbeddingField{.name = "model",
                   .kind = FieldKind::text,
                   .help = "a name that GET /v1/models lists; without it, the server's default",
                   .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.model = as_text(v); }},
    EmbeddingField{.name = "input", .help = "texts or token ids", .read = read_input, .schema = input_schema},
    EmbeddingField{.name = "encoding_format",
                   .kind = FieldKind::text,
                   .help = "how vectors come: numbers, or the bytes of 32-bit floats in base64",
                   .read =
                       [](const Json& v, OpenAiEmbeddingRequest& r) {
                         if (v != "float" && v != "base64") {
                           throw invalid_field("encoding_format", "'encoding_format' is float or base64");
                         }
                         r.base64 = v == "base64";
                       },
                   .schema = [] { return schema::one_of({"float", "base64"}); }},
    EmbeddingField{.name = "dimensions",
                   .kind = FieldKind::integer,
                   .least = 1,
                   .most = 1 << 20,
                   .help = "the first so many numbers alone, of models that were trained for it",
                   .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.dimensions = as_integer(v); }},
    EmbeddingField{.name = "truncate",
                   .kind = FieldKind::boolean,
                   .help = "texts that are too long are cut instead of refused",
                   .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.truncate = as_flag(v); }},
    EmbeddingField{.name = "normalize",
                   .kind = FieldKind::boolean,
                   .help = "vectors of length 1",
                   .read = [](const Json& v, OpenAiEmbeddingRequest& r) { r.normalize = as_flag(v); }},
};

}  // namespace

OpenAiEmbeddingRequest read_embedding_request(const Json& body) {
  auto request = read_request<OpenAiEmbeddingRequest>(body, kEmbeddingFields);
  if (request.inputs.empty()) throw invalid_field("input", "'input' is missing");
  return request;
}

Json chat_request_schema() {
  return schema::question_of<OpenAiRequest>("ChatCompletionRequest", {"messages"}, kChatFields, kSharedFields);
}
Json completion_request_schema() {
  return schema::question_of<OpenAiRequest>("CompletionRequest", {"prompt"}, kCompletionFields, kSharedFields);
}
Json embedding_request_schema() {
  return schema::question_of<OpenAiEmbeddingRequest>("EmbeddingRequest", {"input"}, kEmbeddingFields);
}

}  // namespace quarrel
