// Bodies in Quarrel's own form: what each field becomes, and what is refused.
#include "server/native_request.h"

#include <gtest/gtest.h>

namespace quarrel {
namespace {

NativeRequest read(const std::string& body) { return read_native_request(parse_body(body)); }

// The field that a body is refused for; empty: it is taken.
std::string refused(const std::string& body) {
  try {
    read(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400u);
    return error.param;
  }
  return {};
}

TEST(NativeRequest, EveryFieldIsRead) {
  const NativeRequest request = read(R"({"model":"m","prompt":"p","temperature":0.5,"topk":3,"topp":0.25,"minp":0.125,
    "typical_p":0.75,"repeat_penalty":1.5,"repeat_last_n":64,"presence_penalty":-1,"frequency_penalty":2,"mirostat":2,
    "mirostat_tau":4,"mirostat_eta":0.5,"logit_bias":{"7":-100},"max_tokens":9,"seed":7,"stop":["a","b"],"stream":false,
    "resume":true})");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.prompt, "p");
  EXPECT_EQ(request.options.temperature, 0.5f);
  EXPECT_EQ(request.options.top_k, 3);
  EXPECT_EQ(request.options.top_p, 0.25f);
  EXPECT_EQ(request.options.min_p, 0.125f);
  EXPECT_EQ(request.options.typical_p, 0.75f);
  EXPECT_EQ(request.options.repeat_penalty, 1.5f);
  EXPECT_EQ(request.options.penalty_window, 64);
  EXPECT_EQ(request.options.mirostat, true);
  EXPECT_EQ(request.options.mirostat_tau, 4.0f);
  EXPECT_EQ(request.options.mirostat_eta, 0.5f);
  EXPECT_EQ(request.logit_bias, (std::vector<std::pair<TokenId, float>>{{7, -100.0f}}));
  EXPECT_EQ(request.options.presence_penalty, -1.0f);
  EXPECT_EQ(request.options.frequency_penalty, 2.0f);
  EXPECT_EQ(request.options.max_tokens, 9);
  EXPECT_EQ(request.options.seed, 7u);
  EXPECT_EQ(request.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stream, false);
  EXPECT_TRUE(request.resume);
  EXPECT_FALSE(request.reattach);
}

TEST(NativeRequest, BothSpellingsAreOneField) {
  const NativeRequest request = read(R"({"prompt":"p","top_k":3,"top_p":0.25,"min_p":0.125,"repetition_penalty":2})");
  EXPECT_EQ(request.options.repeat_penalty, 2.0f);
  EXPECT_EQ(request.options.top_k, 3);
  EXPECT_EQ(request.options.top_p, 0.25f);
  EXPECT_EQ(request.options.min_p, 0.125f);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.resume);
}

TEST(NativeRequest, AndAreNotSentTogether) {
  EXPECT_EQ(refused(R"({"prompt":"p","topk":3,"top_k":4})"), "top_k");
  EXPECT_EQ(refused(R"({"prompt":"p","top_p":0.5,"topp":0.5})"), "top_p");
  EXPECT_EQ(refused(R"({"prompt":"p","minp":0.5,"min_p":0.1})"), "min_p");
  EXPECT_EQ(refused(R"({"prompt":"p","repeat_penalty":1.1,"repetition_penalty":1.2})"), "repetition_penalty");
  EXPECT_EQ(refused(R"({"prompt":"p","topk":3,"top_k":null})"), "");
}

TEST(NativeRequest, WhatIsToBeAnsweredIsSaidOnce) {
  EXPECT_EQ(refused(R"({})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":""})"), "prompt");
  EXPECT_EQ(refused(R"({"prompt":"p","messages":[{"role":"user","content":"q"}]})"), "prompt");
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":"q"}]})"), "");
}

TEST(NativeRequest, AnAnswerGoesOnOnlyFromABeginningOfItsOwn) {
  const std::string user = R"({"role":"user","content":"q"})";
  const std::string assistant = R"({"role":"assistant","content":"a"})";
  EXPECT_TRUE(read(R"({"continue":true,"progress":true,"messages":[)" + user + "," + assistant + "]}").go_on);
  EXPECT_FALSE(read(R"({"messages":[)" + user + "," + assistant + "]}").go_on);
  EXPECT_EQ(refused(R"({"continue":true,"messages":[)" + user + "]}"), "continue");
  EXPECT_EQ(refused(R"({"continue":true,"prompt":"p"})"), "continue");
}

TEST(NativeRequest, AnAnswerIsTakenUpByItsPlaceAlone) {
  const std::string place = "\"0123456789abcdef0123456789abcdef:42\"";
  const NativeRequest request = read("{\"resume\":" + place + "}");
  ASSERT_TRUE(request.reattach);
  EXPECT_EQ(request.reattach->id, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(request.reattach->event, 42u);
  EXPECT_EQ(refused("{\"prompt\":\"p\",\"resume\":" + place + "}"), "resume");
  for (const char* wrong : {"1", "\"\"", "\"yes\"", "[]", "{}"}) {
    EXPECT_EQ(refused(std::string("{\"prompt\":\"p\",\"resume\":") + wrong + "}"), "resume") << wrong;
  }
}

TEST(NativeRequest, WhatIsNotOfferedTakesWhatSaysNothing) {
  EXPECT_EQ(refused(R"({"prompt":"p","user":"me","metadata":{"a":1},"store":true,"service_tier":"auto","tools":[],
                        "response_format":{"type":"text"},"format":"","think":false})"),
            "");
  EXPECT_EQ(refused(R"({"prompt":"p","tools":[{"type":"function"}]})"), "tools");
  EXPECT_EQ(refused(R"({"prompt":"p","response_format":{"type":"json_object"}})"), "response_format");
  EXPECT_EQ(refused(R"({"prompt":"p","format":"json"})"), "format");
  EXPECT_EQ(refused(R"({"prompt":"p","think":true})"), "think");
}

TEST(NativeRequest, AnUnknownFieldIsNamed) {
  EXPECT_EQ(refused(R"({"prompt":"p","temprature":1})"), "temprature");
  EXPECT_EQ(refused(R"({"prompt":"p","stream":"yes"})"), "stream");
}

}  // namespace
}  // namespace quarrel
