#include "server/openai_request.h"
#include "server/operation.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using namespace schema;

constexpr std::string_view kOpenAiTag = "OpenAI";
constexpr std::string_view kStream = "text/event-stream";

Json usage() {
  return named("Usage",
               object({{"prompt_tokens", integer("of the prompt, cached ones too")},
                       {"completion_tokens", integer("of all answers")},
                       {"total_tokens", integer()},
                       {"prompt_tokens_details", object({{"cached_tokens", integer("that need not be computed")}})},
                       {"completion_tokens_details", object({{"reasoning_tokens", integer()}})}}));
}

Json timings() {
  return named("Timings", object({{"cache_n", integer("tokens that the prefix cache had")},
                                  {"prompt_n", integer("tokens of the prompt that were computed")},
                                  {"prompt_ms", number()},
                                  {"prompt_per_second", number()},
                                  {"predicted_n", integer("tokens of the answers")},
                                  {"predicted_ms", number()},
                                  {"predicted_per_second", number()}}));
}

Json token_properties(bool with_top) {
  Json token = object({{"token", text("as well as text can say it")},
                       {"logprob", number("its natural logarithm; -9999 where it is less")},
                       {"bytes", list(integer(), "a token may be half a character")}});
  if (with_top) {
    token["properties"]["top_logprobs"] = list(named("TopLogprob", token_properties(false)));
    token["required"].push_back("top_logprobs");
  }
  return token;
}

Json chat_logprobs() {
  return named("ChatLogprobs", object({{"content", list(named("TokenLogprob", token_properties(true)))},
                                       {"refusal", or_null(text())}}));
}

Json completion_logprobs() {
  return named("CompletionLogprobs",
               object({{"tokens", list(text())},
                       {"token_logprobs", list(or_null(number()), "null of a first token")},
                       {"top_logprobs", list(or_null(Json{{"type", "object"}}), "token to logarithm")},
                       {"text_offset", list(integer(), "characters before each token")}}));
}

Json finish_reason() { return one_of({"stop", "length"}, "why the answer ends"); }

// What answers of both endpoints begin with.
Json answer(std::string_view name, std::string_view kind, Json choice) {
  return named(name, object({{"id", text()},
                             {"object", one_of({kind})},
                             {"created", integer("seconds since 1970")},
                             {"model", text()},
                             {"system_fingerprint", text("the program and its version")},
                             {"choices", list(std::move(choice))},
                             {"usage", usage()},
                             {"timings", timings()},
                             {"sources", sources_schema(), false}}));
}

Json chat_answer() {
  const Json message =
      named("AnswerMessage",
            object({{"role", one_of({"assistant"})}, {"content", or_null(text())}, {"refusal", or_null(text())}}));
  return answer("ChatCompletion", "chat.completion",
                named("ChatChoice", object({{"index", integer()},
                                            {"message", message},
                                            {"logprobs", or_null(chat_logprobs())},
                                            {"finish_reason", finish_reason()}})));
}

Json completion_answer() {
  return answer("Completion", "text_completion",
                named("CompletionChoice", object({{"index", integer()},
                                                  {"text", text()},
                                                  {"logprobs", or_null(completion_logprobs())},
                                                  {"finish_reason", finish_reason()}})));
}

Json model_schema() {
  return named("Model",
               object({{"id", text("the name that requests give")},
                       {"object", one_of({"model"})},
                       {"created", integer("seconds since 1970")},
                       {"owned_by", text()},
                       {"status", one_of({"unloaded", "loading", "loaded"})},
                       {"context_length", integer("tokens, of one that is loaded"), false},
                       {"max_model_len", integer("the same, as vLLM's clients call it"), false},
                       {"size", integer("of its file, in bytes")},
                       {"parameters", text("how many, as its file says"), false},
                       {"quantization", text("the type of its weights"), false},
                       {"capabilities", list(text(), "what it can do: `completion`, `embedding`")},
                       {"meta", object({{"n_ctx_train", integer("the context it was trained for")}}), false}}));
}

}  // namespace

Operation describe_openai_chat() {
  return {.id = "createChatCompletion",
          .tag = kOpenAiTag,
          .description =
              "With `stream` the answer comes as server-sent events: chunks of a `chat.completion.chunk` "
              "each, then `[DONE]`.",
          .body = chat_request_schema(),
          .example = {{"messages", {{{"role", "user"}, {"content", "Why is the sky blue?"}}}}, {"max_tokens", 64}},
          .queued = true,
          .answers = {{.schema = chat_answer()}, {.media_type = kStream, .schema = schema::event()}},
          .errors = store_errors()};
}

Operation describe_openai_completion() {
  return {.id = "createCompletion",
          .tag = kOpenAiTag,
          .description = "With `stream` the answer comes as server-sent events, then `[DONE]`.",
          .body = completion_request_schema(),
          .example = {{"prompt", "Once upon a time"}, {"max_tokens", 32}},
          .queued = true,
          .answers = {{.schema = completion_answer()}, {.media_type = kStream, .schema = schema::event()}},
          .errors = {{404}}};
}

Operation describe_openai_embeddings() {
  const Json vector = either({list(number()), text("base64 of 32-bit floats, least byte first")});
  const Json item = named("EmbeddingItem", object({{"object", one_of({"embedding"})},
                                                   {"index", integer("of the text that it is of")},
                                                   {"embedding", vector}}));
  const Json spent = named("EmbeddingUsage", object({{"prompt_tokens", integer()}, {"total_tokens", integer()}}));
  return {.id = "createEmbedding",
          .tag = kOpenAiTag,
          .description =
              "What a header `x-quarrel-store` has stored is told by `x-quarrel-stored` in the answer: how many rows "
              "were new.",
          .body = embedding_request_schema(),
          .example = {{"model", "minilm"}, {"input", {"a fox", "a dog"}}},
          .queued = true,
          .headers = {{"x-quarrel-store",
                       text("longbow://host/dataset: what is returned is stored there too, as /api/embed-to does")}},
          .answers = {{.schema = named("EmbeddingList", object({{"object", one_of({"list"})},
                                                                {"data", list(item)},
                                                                {"model", text()},
                                                                {"usage", spent}}))}},
          .errors = store_errors()};
}

Operation describe_openai_models() {
  return {.id = "listModels",
          .tag = kOpenAiTag,
          .answers = {
              {.schema = named("ModelList", object({{"object", one_of({"list"})}, {"data", list(model_schema())}}))}}};
}

Operation describe_openai_model() {
  return {.id = "retrieveModel", .tag = kOpenAiTag, .answers = {{.schema = model_schema()}}, .errors = {{404}}};
}

}  // namespace quarrel
