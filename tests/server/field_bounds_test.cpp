// Every field of every body, as the description has it: a number has both bounds and is refused beyond them, a value of
// another type is refused, each by the field's name. A field that is added is tested by being described.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "server/longbow_request.h"
#include "server/model_api.h"
#include "server/native_request.h"
#include "server/ollama_request.h"
#include "server/ollama_store_api.h"
#include "server/openai_request.h"
#include "server/rerank_api.h"
#include "server/text_api.h"

namespace quarrel {
namespace {

struct Body {
  const char* name;
  Json schema;
  const char* good;  // a body that is taken
  std::function<void(const Json&)> read;
};

template <typename Request>
std::function<void(const Json&)> reader(Request (*read)(const Json&)) {
  return [read](const Json& body) { static_cast<void>(read(body)); };
}

void read_options(const Json& options) { check_ollama_options(options); }

std::vector<Body> bodies() {
  constexpr const char* kMessages = R"({"messages":[{"role":"user","content":"a"}],"logprobs":true})";
  constexpr const char* kModel = R"({"model":"a"})";
  return {
      {"chat", chat_request_schema(), kMessages, reader(read_chat_request)},
      {"completion", completion_request_schema(), R"({"prompt":"a"})", reader(read_completion_request)},
      {"embedding", embedding_request_schema(), R"({"input":"a"})", reader(read_embedding_request)},
      {"native", native_request_schema(), R"({"prompt":"a"})", reader(read_native_request)},
      {"ollama generate", ollama_generate_schema(), R"({"prompt":"a","logprobs":true})", reader(read_ollama_generate)},
      {"ollama chat", ollama_chat_schema(), kMessages, reader(read_ollama_chat)},
      {"ollama options", ollama_options_schema(), "{}", read_options},
      {"ollama embed", ollama_embed_schema(), R"({"input":"a"})", reader(read_ollama_embed)},
      {"ollama embeddings", ollama_embeddings_schema(), R"({"prompt":"a"})", reader(read_ollama_embeddings)},
      {"ollama model", ollama_model_schema(), kModel, reader(read_ollama_model)},
      {"ollama copy", ollama_copy_schema(), R"({"source":"a","destination":"b"})", reader(read_ollama_copy)},
      {"ollama pull", ollama_pull_schema(), kModel, reader(read_ollama_pull)},
      {"ollama create", ollama_create_schema(), R"({"model":"a","from":"b"})", reader(read_ollama_create)},
      {"load", load_schema(), "{}", reader(read_load)},
      {"unload", unload_schema(), "{}", reader(read_unload)},
      {"tokenize", tokenize_schema(), R"({"content":"a"})", reader(read_tokenize)},
      {"detokenize", detokenize_schema(), R"({"tokens":[1]})", reader(read_detokenize)},
      {"apply-template", apply_template_schema(), R"({"messages":[{"role":"user","content":"a"}]})",
       reader(read_apply_template)},
      {"rerank", rerank_schema(), R"({"query":"a","documents":["b"]})", reader(read_rerank)},
      {"embed-to", embed_to_schema(), R"({"texts":["a"]})", reader(read_embed_to)},
      {"search", store_search_schema(), R"({"query":"a"})", reader(read_store_search)},
  };
}

// The field that it is refused for; empty: it is taken.
std::string refused_field(const Body& body, const std::string& name, const Json& value) {
  Json changed = Json::parse(body.good);
  changed[name] = value;
  try {
    body.read(changed);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u) << body.name << " " << name;
    return error.param;
  }
  return {};
}

// "integer", "string" …; empty: the field takes several kinds, and has tests of its own.
std::string kind_of_field(const Json& schema) {
  if (!schema.contains("type") || schema.contains("const") || schema.contains("enum")) return {};
  if (schema["type"].is_string()) return schema["type"];
  if (schema["type"].size() == 2 && schema["type"][1] == "null") return schema["type"][0];
  return {};
}

void check_number(const Body& body, const std::string& name, const Json& schema, bool whole) {
  ASSERT_TRUE(schema.contains("minimum") && schema.contains("maximum")) << body.name << " " << name;
  const double least = schema["minimum"], most = schema["maximum"];
  const auto beyond = [&](double bound) { return std::max(whole ? 1.0 : 1e-3, std::abs(bound) * 1e-12); };
  for (const double taken : {least, most}) {
    EXPECT_EQ(refused_field(body, name, taken), "") << body.name << " " << name << " " << taken;
  }
  for (const double wrong : {least - beyond(least), most + beyond(most), -1e308, 1e308}) {
    EXPECT_EQ(refused_field(body, name, wrong), name) << body.name << " " << wrong;
  }
  if (whole) {
    EXPECT_EQ(refused_field(body, name, std::max(least, 0.0) + 0.5), name) << body.name;
  }
}

TEST(FieldBounds, EveryFieldIsAsItsDescriptionSays) {
  std::size_t numbers = 0, others = 0;
  for (const Body& body : bodies()) {
    EXPECT_NO_THROW(body.read(Json::parse(body.good))) << body.name;
    EXPECT_EQ(refused_field(body, "no_such_field", 1), "no_such_field") << body.name;
    for (const auto& [name, schema] : body.schema["properties"].items()) {
      const std::string kind = kind_of_field(schema);
      const bool is_number = kind == "integer" || kind == "number";
      if (is_number) check_number(body, name, schema, kind == "integer");
      (is_number ? numbers : others) += 1;
      std::vector<std::pair<const char*, Json>> wrong = {
          {"string", "1"}, {"boolean", true}, {"array", Json::array({1})}, {"object", {{"a", 1}}}};
      if (!is_number) wrong.emplace_back("number", 5);
      for (const auto& [of, value] : wrong) {
        if (kind.empty() || kind == of) continue;
        EXPECT_EQ(refused_field(body, name, value), name) << body.name << " " << value.dump();
      }
    }
  }
  EXPECT_GT(numbers, 50u);
  EXPECT_GT(others, 50u);
}

}  // namespace
}  // namespace quarrel
