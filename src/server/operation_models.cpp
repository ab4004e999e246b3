#include "server/model_api.h"
#include "server/operation.h"
#include "server/rerank_api.h"
#include "server/schema.h"
#include "server/text_api.h"

namespace quarrel {
namespace {

using namespace schema;

constexpr std::string_view kModelsTag = "Models";
constexpr std::string_view kTextTag = "Texts";

Json state() { return one_of({"unloaded", "loading", "loaded", "unloading"}); }

// What a request that takes its time answers with, whole or as it comes.
std::vector<Operation::Answer> news(Json end) {
  return {{.schema = std::move(end)},
          {.media_type = "application/x-ndjson", .schema = text()},
          {.media_type = "text/event-stream", .schema = text()}};
}

Json status_answer(std::string_view name, std::initializer_list<std::string_view> states) {
  return named(name, object({{"status", one_of(states)}, {"model", text()}}));
}

Operation rerank_at(std::string_view id) {
  const Json result = named("RerankResult", object({{"index", integer("in the request's list")},
                                                    {"relevance_score", number()},
                                                    {"document", object({{"text", text()}}), false}}));
  const Json scored =
      named("RerankScore",
            object({{"index", integer("in the request's list")}, {"score", number()}, {"text", text(), false}}));
  const Json usage = object({{"prompt_tokens", integer()}, {"total_tokens", integer()}});
  const Json answer = named(
      "RerankAnswer",
      object({{"model", text()}, {"object", text()}, {"usage", usage}, {"results", list(result, "the best first")}}));
  return {.id = id,
          .tag = kTextTag,
          .description =
              "A model made for ranking scores each text together with the query; any other only compares vectors: "
              "the score is the cosine of the query's and the text's. `texts` in place of `documents` gets a list.",
          .body = rerank_schema(),
          .example = {{"model", "minilm"}, {"query", "a fox"}, {"documents", {"a dog", "the fox"}}},
          .queued = true,
          .answers = {{.schema = either({answer, list(scored)})}},
          .errors = {{404}}};
}

}  // namespace

Operation describe_native_models() {
  const Json model = named("ModelState", object({{"name", text()},
                                                 {"loaded", boolean()},
                                                 {"state", state()},
                                                 {"parameters", text("\"135M\"; empty: not known")},
                                                 {"quantization", text()},
                                                 {"size", integer("of its file, in bytes")}}));
  return {.id = "listModelStates", .tag = kModelsTag, .answers = {{.schema = list(model)}}};
}

Operation describe_native_model() {
  return {
      .id = "getModel",
      .tag = kModelsTag,
      .answers = {{.schema = named(
                       "ModelDetails",
                       object({{"name", text()},
                               {"loaded", boolean()},
                               {"state", state()},
                               {"parameters", text()},
                               {"quantization", text()},
                               {"size", integer("of its file, in bytes")},
                               {"parameter_count", integer()},
                               {"family", text()},
                               {"digest", text()},
                               {"modified_at", text()},
                               {"system", or_null(text("what a conversation begins with"))},
                               {"settings", Json{{"type", "object"}}},
                               {"recommended", named("RecommendedSampling", object({{"temperature", number(), false},
                                                                                    {"top_k", integer(), false},
                                                                                    {"top_p", number(), false},
                                                                                    {"min_p", number(), false}}))},
                               {"capabilities", list(one_of({"completion", "embedding"}))},
                               {"context_length", or_null(integer("of the loaded one"))},
                               {"memory_usage", integer("bytes")},
                               {"in_use", boolean()},
                               {"completed", integer("bytes of weights, while it loads"), false},
                               {"total", integer(), false},
                               {"problem", text("why its file cannot be described: what it would say is empty"),
                                false}}))}},
      .errors = {{404}}};
}

Operation describe_load_model() {
  return {.id = "loadModel",
          .tag = kModelsTag,
          .description =
              "With `reload`, what the name stands for now is loaded beside the old one and takes its place; no "
              "request is lost, and if it cannot be loaded the old one stays.",
          .body = load_schema(),
          .body_required = false,
          .example = {{"keep_alive", "5m"}},
          .answers = news(named("LoadAnswer", object({{"status", one_of({"ready"})},
                                                      {"model", text()},
                                                      {"context_length", integer("tokens")},
                                                      {"load_seconds", number()}}))),
          .errors = {{404}}};
}

Operation describe_unload_model() {
  return {.id = "unloadModel",
          .tag = kModelsTag,
          .description = "Who uses the model keeps it until the end; the answer comes when it is gone.",
          .body = unload_schema(),
          .body_required = false,
          .example = Json::object(),
          .answers = news(status_answer("UnloadAnswer", {"unloaded", "not_loaded"})),
          .errors = {{404}}};
}

Operation describe_clear_model_cache() {
  return {.id = "clearModelCache",
          .tag = kModelsTag,
          .body = nothing(),
          .body_required = false,
          .answers = {{.schema = status_answer("ClearCacheAnswer", {"cleared", "not_loaded"})}},
          .errors = {{404}}};
}

Operation describe_tokenize() {
  const Json piece = named("TokenPiece", object({{"id", integer()}, {"piece", either({text(), list(integer())})}}));
  return {.id = "tokenize",
          .tag = kTextTag,
          .body = tokenize_schema(),
          .example = {{"content", "Hello world"}},
          .answers = {{.schema = named("TokenizeAnswer",
                                       object({{"tokens", list(either({integer(), piece}))}, {"count", integer()}}))}},
          .errors = {{404}}};
}

Operation describe_detokenize() {
  return {.id = "detokenize",
          .tag = kTextTag,
          .body = detokenize_schema(),
          .example = {{"tokens", {1, 2, 3}}},
          .answers = {{.schema = named("DetokenizeAnswer", object({{"content", text()}}))}},
          .errors = {{404}}};
}

Operation describe_apply_template() {
  return {.id = "applyTemplate",
          .tag = kTextTag,
          .body = apply_template_schema(),
          .example = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}}},
          .answers = {{.schema = named("ApplyTemplateAnswer", object({{"prompt", text()}}))}},
          .errors = {{404}}};
}

Operation describe_rerank() { return rerank_at("rerank"); }
Operation describe_openai_rerank() { return rerank_at("openaiRerank"); }

}  // namespace quarrel
