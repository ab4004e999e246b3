// The envelope of WebSocket messages: what is read, what is refused and with which code, what is written.
#include "server/ws_protocol.h"

#include <gtest/gtest.h>

#include "server/native_writer.h"

namespace quarrel {
namespace {

struct Refusal {
  std::string param = {}, id = {}, code = {};
};
Refusal refusal(const std::string& text) {
  try {
    read_socket_message(text);
  } catch (const SocketMessageError& error) {
    return {error.param.empty() ? error.code : error.param, error.id, std::string(socket_error_code(error))};
  }
  return {};
}

TEST(WsProtocol, MessagesAreRead) {
  const SocketMessage asked =
      read_socket_message(R"({"type":"inference","payload":{"prompt":"Hello,","stream":true}})");
  EXPECT_EQ(asked.type, SocketMessageType::inference);
  EXPECT_EQ(asked.id, "");
  EXPECT_EQ(asked.payload["prompt"], "Hello,");
  const SocketMessage stop = read_socket_message(R"({"type":"stop","id":"a-1","payload":{}})");
  EXPECT_EQ(stop.type, SocketMessageType::stop);
  EXPECT_EQ(stop.id, "a-1");
  EXPECT_EQ(read_socket_message(R"({"type":"status"})").type, SocketMessageType::status);
  EXPECT_EQ(read_socket_message(R"({"type":"ping","id":null,"payload":null})").type, SocketMessageType::ping);
}

TEST(WsProtocol, WhatCannotBeReadIsNamedWithItsId) {
  const std::pair<std::string, Refusal> cases[] = {
      {"", {"invalid_json", ""}},
      {"{", {"invalid_json", ""}},
      {"[]", {"invalid_json", ""}},
      {"\"ping\"", {"invalid_json", ""}},
      {std::string(1000, '['), {"invalid_json", ""}},
      {"{\"type\":\"\xff\"}", {"invalid_json", ""}},
      {R"({})", {"type", ""}},
      {R"({"id":"a"})", {"type", "a"}},
      {R"({"type":1,"id":"a"})", {"type", "a"}},
      {R"({"type":"infer","id":"a"})", {"type", "a"}},
      {R"({"type":"ping","id":7})", {"id", ""}},
      {R"({"type":"ping","id":""})", {"id", ""}},
      {R"({"type":"ping","id":"a b"})", {"id", ""}},
      {R"({"type":"ping","id":")" + std::string(129, 'a') + "\"}", {"id", ""}},
      {R"({"type":"inference","id":"a","payload":"p"})", {"payload", "a"}},
      {R"({"type":"inference","id":"a","payloads":{}})", {"payloads", "a"}},
      {R"({"type":"stop","id":"a","payload":{"all":true}})", {"all", "a"}},
  };
  for (const auto& [text, wanted] : cases) {
    const Refusal said = refusal(text);
    EXPECT_EQ(said.param, wanted.param) << text;
    EXPECT_EQ(said.id, wanted.id) << text;
    EXPECT_EQ(said.code, "INVALID_REQUEST") << text;
  }
}

TEST(WsProtocol, EveryFailureHasOneOfSixCodes) {
  const auto code = [](unsigned status, const char* name) {
    return std::string(socket_error_code(ApiError(status, "", name, "")));
  };
  EXPECT_EQ(code(400, "invalid_value"), "INVALID_REQUEST");
  EXPECT_EQ(code(401, "invalid_api_key"), "INVALID_REQUEST");
  EXPECT_EQ(code(403, ""), "INVALID_REQUEST");
  EXPECT_EQ(code(404, "model_not_found"), "MODEL_NOT_FOUND");
  EXPECT_EQ(code(404, "answer_not_found"), "CONNECTION_LOST");
  EXPECT_EQ(code(429, "rate_limit_exceeded"), "RATE_LIMITED");
  EXPECT_EQ(code(503, "queue_full"), "QUEUE_FULL");
  EXPECT_EQ(code(503, "draining"), "CONNECTION_LOST");
  EXPECT_EQ(code(503, "cancelled"), "INFERENCE_ERROR");
  EXPECT_EQ(code(503, "out_of_memory"), "INFERENCE_ERROR");
  EXPECT_EQ(code(500, ""), "INFERENCE_ERROR");
}

TEST(WsProtocol, MessagesAreWritten) {
  const AnswerEvent event{.text = "a \"b\"\n", .token = 17, .tokens_per_second = 12.345f};
  EXPECT_EQ(AnswerMessages("x").message(event, ""),
            R"({"type":"inference","id":"x","payload":{"token":"a \"b\"\n","token_id":17,"stream":true,)"
            R"("complete":false,"tokens_per_sec":12.35}})");
  const AnswerEvent last{.text = "all",
                         .end = std::make_shared<AnswerEnd>(AnswerEnd{
                             .finish_reason = "length", .tokens_generated = 5, .prompt_tokens = 3, .whole = true})};
  EXPECT_EQ(
      AnswerMessages("x").message(last, "id:5"),
      R"({"type":"inference","id":"x","payload":{"token":"all","token_id":-1,"stream":false,"complete":true,)"
      R"("tokens_per_sec":0.00,"finish_reason":"length","tokens_generated":5,"prompt_tokens":3,"resume":"id:5"}})");
  ApiError busy(503, "unavailable_error", "queue_full", "full");
  busy.retry_after = std::chrono::milliseconds(2500);
  EXPECT_EQ(error_message("x", busy),
            R"({"type":"error","id":"x","payload":{"code":"QUEUE_FULL","message":"full","reason":"queue_full",)"
            R"("retry_after":3}})");
  EXPECT_EQ(
      error_message("", invalid_field("topk", "wrong")),
      R"({"type":"error","payload":{"code":"INVALID_REQUEST","message":"wrong","reason":"invalid_value","param":"topk"}})");
  const AnswerEvent failed{.end = std::make_shared<AnswerEnd>(AnswerEnd{.error = ApiError(500, "", "", "bad")})};
  EXPECT_EQ(AnswerMessages("x").message(failed, ""),
            R"({"type":"error","id":"x","payload":{"code":"INFERENCE_ERROR","message":"bad"}})");
  EXPECT_EQ(status_message("x", {{"connected", true}}), R"({"type":"status","id":"x","payload":{"connected":true}})");
  EXPECT_EQ(metrics_message({{"running", 1}}), R"({"type":"metrics","payload":{"running":1}})");
}

TEST(NativeAnswer, OneTokenHasNoRate) {
  EXPECT_EQ(tokens_per_second(1, 1e-9), 0.0);
  EXPECT_EQ(tokens_per_second(11, 2.0), 5.0);
  EXPECT_EQ(tokens_per_second(0, 0.0), 0.0);
}

struct LastEvent final : AnswerReceiver {
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent> events, const ResumePoint&) override {
    last = events.back();
    return true;
  }
  AnswerEvent last = {};
};

// Of the time that the model took, as over HTTP: where all tokens come in one batch there is none between them.
TEST(NativeAnswer, TheEndHasTheRateOfTheWhole) {
  for (const bool stream : {true, false}) {
    const auto receiver = std::make_shared<LastEvent>();
    EventWriter writer(receiver, {.stream = stream});
    std::vector<GenerationEvent> tokens(11, {.text = "a", .token = 7});
    writer.take(tokens);
    writer.end({.generated_tokens = 11, .generate_seconds = 2.0});
    ASSERT_NE(receiver->last.end, nullptr);
    EXPECT_EQ(receiver->last.tokens_per_second, 5.0f);
    EXPECT_EQ(receiver->last.text, stream ? "" : "aaaaaaaaaaa");
  }
}

}  // namespace
}  // namespace quarrel
