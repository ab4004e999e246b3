#include "server/ollama_request.h"
#include "server/ollama_store_api.h"
#include "server/operation.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using namespace schema;

constexpr std::string_view kOllamaTag = "Ollama";
constexpr std::string_view kLines = "application/x-ndjson";
constexpr std::string_view kLinesHelp =
    "Without `\"stream\": false` the answer comes as lines of JSON; the last of them has `done` and the counts. A "
    "question that is empty loads the model, or unloads it with `\"keep_alive\": 0`.";

// What a whole answer, or a stream's last line, tells; all but the first three only where something was asked.
Json answer(std::string_view name, Property said) {
  Json schema = object({{"model", text("as it was asked for")},
                        {"created_at", text()},
                        std::move(said),
                        {"done", boolean()},
                        {"done_reason", one_of({"stop", "length", "load", "unload"}), false},
                        {"total_duration", integer("nanoseconds, as the others"), false},
                        {"load_duration", integer(), false},
                        {"prompt_eval_count", integer("tokens of the prompt"), false},
                        {"prompt_eval_duration", integer(), false},
                        {"eval_count", integer("tokens of the answer"), false},
                        {"eval_duration", integer(), false}});
  if (said.name == "response") schema["properties"]["context"] = list(integer(), "to be sent with the next prompt");
  return named(name, std::move(schema));
}

Json details() {
  return named("OllamaDetails", object({{"parent_model", text()},
                                        {"format", text()},
                                        {"family", text()},
                                        {"families", list(text())},
                                        {"parameter_size", text()},
                                        {"quantization_level", text()}}));
}

// What comes at last, and alone without a stream.
Json ended() { return named("OllamaStatus", object({{"status", text()}})); }

}  // namespace

Json ollama_generate_answer_schema() { return answer("OllamaGenerateAnswer", {"response", text()}); }

Operation describe_ollama_chat() {
  const Json message = named("OllamaAnswerMessage", object({{"role", one_of({"assistant"})}, {"content", text()}}));
  return {.id = "ollamaChat",
          .tag = kOllamaTag,
          .description = kLinesHelp,
          .body = ollama_chat_schema(),
          .example = {{"model", "default"},
                      {"messages", {{{"role", "user"}, {"content", "Why is the sky blue?"}}}},
                      {"stream", false}},
          .queued = true,
          .answers = {{.schema = answer("OllamaChatAnswer", {"message", message})},
                      {.media_type = kLines, .schema = text()}},
          .errors = {{404}}};
}

Operation describe_ollama_embed() {
  return {.id = "ollamaEmbed",
          .tag = kOllamaTag,
          .body = ollama_embed_schema(),
          .example = {{"model", "minilm"}, {"input", {"a fox", "a dog"}}},
          .queued = true,
          .answers = {{.schema = named("OllamaEmbedAnswer", object({{"model", text()},
                                                                    {"embeddings", list(list(number()))},
                                                                    {"total_duration", integer("nanoseconds")},
                                                                    {"load_duration", integer("nanoseconds")},
                                                                    {"prompt_eval_count", integer()}}))}},
          .errors = {{404}}};
}

Operation describe_ollama_embeddings() {
  return {.id = "ollamaEmbeddings",
          .tag = kOllamaTag,
          .body = ollama_embeddings_schema(),
          .example = {{"model", "minilm"}, {"prompt", "a fox"}},
          .queued = true,
          .answers = {{.schema = named("OllamaEmbeddingsAnswer", object({{"embedding", list(number())}}))}},
          .errors = {{404}}};
}

Operation describe_ollama_tags() {
  const Json model = named("OllamaModel", object({{"name", text()},
                                                  {"model", text()},
                                                  {"modified_at", text()},
                                                  {"size", integer("of its file, in bytes")},
                                                  {"digest", text()},
                                                  {"details", details()},
                                                  {"capabilities", list(text())}}));
  return {.id = "ollamaTags",
          .tag = kOllamaTag,
          .answers = {{.schema = named("OllamaModelList", object({{"models", list(model)}}))}}};
}

Operation describe_ollama_show() {
  return {.id = "ollamaShow",
          .tag = kOllamaTag,
          .body = ollama_model_schema(),
          .example = {{"model", "default"}},
          .answers = {{.schema = named("OllamaShowAnswer", object({{"modelfile", text()},
                                                                   {"parameters", text()},
                                                                   {"template", text()},
                                                                   {"details", details()},
                                                                   {"model_info", Json{{"type", "object"}}},
                                                                   {"capabilities", list(text())},
                                                                   {"modified_at", text()},
                                                                   {"license", text(), false},
                                                                   {"system", text(), false}}))}},
          .errors = {{404}}};
}

Operation describe_ollama_ps() {
  const Json model = named("OllamaLoadedModel", object({{"name", text()},
                                                        {"model", text()},
                                                        {"size", integer("in memory, in bytes")},
                                                        {"digest", text()},
                                                        {"details", details()},
                                                        {"expires_at", text("when it goes, if nobody asks")},
                                                        {"size_vram", integer()},
                                                        {"context_length", integer()},
                                                        {"context_limit",
                                                         text("what made it shorter than the model's own, if "
                                                              "something did"),
                                                         false}}));
  return {.id = "ollamaPs",
          .tag = kOllamaTag,
          .answers = {{.schema = named("OllamaLoadedModelList", object({{"models", list(model)}}))}}};
}

Operation describe_ollama_delete() {
  return {.id = "ollamaDelete",
          .tag = kOllamaTag,
          .body = ollama_model_schema(),
          .example = {{"model", "copy"}},
          .answers = {{.media_type = {}}},
          .errors = {{404}}};
}

Operation describe_ollama_copy() {
  return {.id = "ollamaCopy",
          .tag = kOllamaTag,
          .body = ollama_copy_schema(),
          .example = {{"source", "default"}, {"destination", "copy"}},
          .answers = {{.media_type = {}}},
          .errors = {{404}}};
}

Operation describe_ollama_pull() {
  return {
      .id = "ollamaPull",
      .tag = kOllamaTag,
      .description =
          "Lines with `status`, and of each layer `digest`, `total` and `completed`; the last one says `success` or "
          "has an `error`.",
      .body = ollama_pull_schema(),
      .example = {{"model", "name:tag"}, {"stream", false}},
      .answers = {{.schema = ended()}, {.media_type = kLines, .schema = text()}},
      .errors = {{404}, {500}, {502}, {507}}};
}
Operation describe_ollama_push() { return {.id = "ollamaPush", .tag = kOllamaTag, .body = Json{{"type", "object"}}}; }
Operation describe_ollama_create() {
  return {.id = "ollamaCreate",
          .tag = kOllamaTag,
          .body = ollama_create_schema(),
          .example = {{"model", "pirate"}, {"from", "default"}, {"system", "You are a pirate."}, {"stream", false}},
          .answers = {{.schema = ended()}, {.media_type = kLines, .schema = text()}},
          .errors = {{404}}};
}

Operation describe_ollama_version() {
  return {
      .id = "ollamaVersion",
      .tag = kOllamaTag,
      .answers = {{.schema = named("OllamaVersion", object({{"version", text("of Ollama's API that is spoken")}}))}}};
}

}  // namespace quarrel
