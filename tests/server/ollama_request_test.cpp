// Ollama's bodies: what a field becomes, and by which name it is refused.
#include "server/ollama_request.h"

#include <gtest/gtest.h>

#include <vector>

#include "gguf/writer.h"
#include "server/ollama_store_api.h"
#include "session/session_support.h"

namespace quarrel {
namespace {

using std::chrono::milliseconds;

// The field that is refused; empty: the body is taken.
template <typename Read>
std::string refused(Read read, const std::string& body) {
  try {
    read(Json::parse(body));
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u);
    return error.param;
  }
  return {};
}

milliseconds keep_alive(const std::string& json) { return read_keep_alive(Json::parse(json)); }

TEST(OllamaRequest, TimesAreNumbersAndGoDurations) {
  EXPECT_EQ(keep_alive("0"), milliseconds(0));
  EXPECT_EQ(keep_alive("1.5"), milliseconds(1500));
  EXPECT_EQ(keep_alive("-3"), milliseconds(-1));
  EXPECT_EQ(keep_alive("1e300"), milliseconds(-1));
  EXPECT_EQ(keep_alive("\"5m\""), milliseconds(300'000));
  EXPECT_EQ(keep_alive("\"1h30m\""), milliseconds(5'400'000));
  EXPECT_EQ(keep_alive("\"1.5s250ms\""), milliseconds(1750));
  EXPECT_EQ(keep_alive("\"-1m\""), milliseconds(-1));
  EXPECT_EQ(keep_alive("\"0\""), milliseconds(0));
  EXPECT_EQ(keep_alive("\"30\""), milliseconds(30'000));
  EXPECT_EQ(keep_alive("\"1us\""), milliseconds(1));  // a little is not nothing
  for (const char* wrong : {"\"\"", "\"-\"", "\"5 m\"", "\"m\"", "\"1m5\"", "\"inf\"", "\"1e3s\"", "true", "[]"}) {
    EXPECT_THROW(keep_alive(wrong), ApiError) << wrong;
  }
}

TEST(OllamaRequest, OptionsBecomeWhatTheyMean) {
  const OllamaRequest request = read_ollama_generate(Json::parse(
      R"({"model":"toy","prompt":"a","options":{"num_predict":-2,"top_k":-1,"seed":-1,"mirostat":2,"stop":"x",
          "repeat_last_n":-1,"num_gpu":99}})"));
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.options.max_tokens, -1);
  EXPECT_EQ(request.options.top_k, 0);
  EXPECT_EQ(request.options.seed, std::nullopt);
  EXPECT_TRUE(request.any_seed);
  EXPECT_EQ(request.options.mirostat, true);
  EXPECT_EQ(request.options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(request.options.penalty_window, -1);
}

// `/api/create` checks a model's own parameters as it does options: all of those count.
TEST(OllamaRequest, AModelsOwnParametersAreReadAsOptionsAre) {
  GgufWriter writer;
  writer.add_tensor("w", {4}, std::vector<float>(4));
  const std::vector<std::byte> bytes = writer.to_bytes();
  const GgufFile file = GgufFile::view(bytes, "made up");
  test::KeptLog log;
  std::size_t numbers = 0;
  const Json described = ollama_options_schema();
  for (const auto& [name, schema] : described["properties"].items()) {
    if (!schema.contains("minimum")) continue;
    for (const char* bound : {"minimum", "maximum"}) {
      const Json options{{name, schema[bound]}};
      const RecommendedSampling asked = read_ollama_generate({{"prompt", "a"}, {"options", options}}).options;
      EXPECT_EQ(read_recommended_sampling(file, options.dump(), log).list(), asked.list()) << options.dump();
      ++numbers;
    }
  }
  EXPECT_GE(numbers, 30u);
  EXPECT_TRUE(log.lines.empty()) << log.lines.front();
}

TEST(OllamaRequest, WhatIsWrongIsNamed) {
  const auto generate = [](const std::string& inside) {
    return refused(read_ollama_generate, "{\"model\":\"toy\"," + inside + "}");
  };
  EXPECT_EQ(generate(R"("prompt":"a")"), "");
  EXPECT_EQ(generate(R"("prompt":1)"), "prompt");
  EXPECT_EQ(generate(R"("options":[])"), "options");
  EXPECT_EQ(generate(R"("options":{"mirostat":1})"), "mirostat");
  EXPECT_EQ(generate(R"("options":{"num_predict":-3})"), "num_predict");
  EXPECT_EQ(generate(R"("options":{"penalize_newline":false})"), "penalize_newline");
  EXPECT_EQ(generate(R"("format":"json")"), "format");
  EXPECT_EQ(generate(R"("format":"")"), "");
  EXPECT_EQ(generate(R"("think":"high")"), "think");
  EXPECT_EQ(generate(R"("context":[-1])"), "context");
  EXPECT_EQ(generate(R"("raw":true,"context":[1])"), "raw");
  EXPECT_EQ(generate(R"("messages":[])"), "messages");
}

TEST(OllamaRequest, OptionsAtTheTopMaySayNothing) {
  const auto chat = [](const std::string& inside) {
    return refused(read_ollama_chat, R"({"messages":[],)" + inside + "}");
  };
  const auto generate = [](const std::string& inside) { return refused(read_ollama_generate, "{" + inside + "}"); };
  EXPECT_EQ(chat(R"("temperature":null,"stop":[])"), "");
  EXPECT_EQ(generate(R"("top_p":null,"seed":null)"), "");
  EXPECT_EQ(chat(R"("temperature":0)"), "temperature");
  EXPECT_EQ(generate(R"("seed":7)"), "seed");
}

TEST(OllamaRequest, AContextIsThatOfTheServer) {
  EXPECT_NO_THROW(check_context(256, 256, 512));
  EXPECT_NO_THROW(check_context(4096, 512, 512)) << "all that the model was trained for";
  EXPECT_THROW(check_context(257, 256, 512), ApiError);
}

// Whoever says what a full context keeps wants it to go on; who says both that and that it is to end means neither.
TEST(OllamaRequest, WhatAShiftKeepsNeedsOne) {
  const auto generate = [](const std::string& inside) {
    return refused(read_ollama_generate, R"({"model":"toy","prompt":"a",)" + inside + "}");
  };
  for (const char* taken : {R"("options":{"num_keep":4})", R"("shift":true,"options":{"num_keep":-1})",
                            R"("shift":false,"options":{"num_keep":0})", R"("shift":null,"options":{"num_keep":4})"}) {
    EXPECT_EQ(generate(taken), "") << taken;
  }
  EXPECT_EQ(generate(R"("shift":false,"options":{"num_keep":4})"), "num_keep");
  EXPECT_EQ(generate(R"("options":{"num_keep":-2})"), "num_keep");
  EXPECT_EQ(refused(read_ollama_chat, R"({"messages":[],"shift":false,"options":{"num_keep":-1}})"), "num_keep");
}

TEST(OllamaRequest, MessagesHaveARoleAndText) {
  const auto chat = [](const std::string& message) {
    return refused(read_ollama_chat, "{\"messages\":[" + message + "]}");
  };
  EXPECT_EQ(chat(R"({"role":"user","content":"a"})"), "");
  EXPECT_EQ(chat(R"({"role":"assistant"})"), "");
  const Json body = Json::parse(R"({"messages":[{"role":"assistant","content":"a","thinking":"hm"}]})");
  EXPECT_EQ(read_ollama_chat(body).messages[0]["thinking"], "hm") << "as it came with an answer";
  EXPECT_EQ(chat(R"({"role":"assistant","thinking":["a"]})"), "thinking");
  EXPECT_EQ(chat(R"({"content":"a"})"), "messages");
  EXPECT_EQ(chat(R"({"role":"user","content":["a"]})"), "content");
  EXPECT_EQ(chat(R"({"role":"user","content":"a","images":["b"]})"), "images");
  EXPECT_EQ(chat(R"("a")"), "messages");
}

TEST(OllamaRequest, TextsForVectors) {
  EXPECT_EQ(read_ollama_embed(Json::parse(R"({"input":["a",""]})")).inputs.size(), 2u);
  EXPECT_TRUE(read_ollama_embed(Json::parse(R"({"input":""})")).inputs.empty());
  EXPECT_EQ(read_ollama_embed(Json::parse(R"({"input":"a","dimensions":0})")).dimensions, std::nullopt);
  EXPECT_EQ(refused(read_ollama_embed, R"({"input":[1]})"), "input");
  EXPECT_EQ(refused(read_ollama_embeddings, R"({"prompt":["a"]})"), "prompt");
}

TEST(OllamaRequest, ModelsAreNamedTheOldWayToo) {
  EXPECT_EQ(read_ollama_model(Json::parse(R"({"name":"toy"})")).model, "toy");
  EXPECT_EQ(read_ollama_model(Json::parse(R"({"model":"toy","name":""})")).model, "toy");
  EXPECT_EQ(refused(read_ollama_model, "{}"), "model");
  // Whichever came last would be shown, or removed.
  for (const char* both : {R"({"model":"a","name":"b"})", R"({"name":"b","model":"a"})"}) {
    EXPECT_EQ(refused(read_ollama_model, both), "name");
    EXPECT_EQ(refused(read_ollama_pull, both), "name");
    EXPECT_EQ(refused(read_ollama_create, Json::parse(both).dump().insert(1, R"("from":"c",)")), "name");
  }
  for (const char* same :
       {R"({"model":"a","name":"a"})", R"({"model":"a","name":null})", R"({"model":"","name":"a"})"}) {
    EXPECT_EQ(read_ollama_model(Json::parse(same)).model, "a");
    EXPECT_EQ(read_ollama_pull(Json::parse(same)).model, "a");
  }
  EXPECT_EQ(refused(read_ollama_copy, R"({"source":"a"})"), "destination");
}

}  // namespace
}  // namespace quarrel
