// A token's event as each dialect writes it: byte for byte, whatever is in the text, and the same for the hundredth
// as for the first.
#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "server/answer_event.h"
#include "server/ollama_writer.h"
#include "server/openai_writer.h"

namespace quarrel {
namespace {

GenerationEvent piece(std::string text, std::int32_t answer = 0) {
  GenerationEvent event;
  event.kind = GenerationEvent::Kind::piece;
  event.text = std::move(text);
  event.token = 5;
  event.answer = answer;
  return event;
}

// What a writer sends for these pieces, in two calls.
class Sent {
 public:
  Sent() : exchange_(std::make_shared<http::Exchange>(http::Request{}, std::size_t{1} << 20, [] {})) {}
  const std::shared_ptr<http::Exchange>& exchange() const noexcept { return exchange_; }

  std::string of(AnswerWriter& writer, std::vector<GenerationEvent> events) const {
    exchange_->begin(http::stream_head("text/event-stream"));
    writer.take(events);
    return exchange_->take().pieces;
  }

 private:
  std::shared_ptr<http::Exchange> exchange_;
};

// Without what differs from one time to the next.
std::string plain(const std::string& text) {
  static const std::regex id("(chatcmpl|cmpl)-[A-Za-z0-9]{24}"), created("\"created\":[0-9]+"),
      time("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z");
  return std::regex_replace(std::regex_replace(std::regex_replace(text, id, "ID"), created, "\"created\":0"), time,
                            "TIME");
}

TEST(AnswerText, OpenAiChat) {
  const Sent sent;
  OpenAiRequest request;
  request.stream = true;
  request.ask.answers = 2;
  const auto writer =
      make_openai_writer(sent.exchange(), OpenAiForm::chat, request, {.model = "m\"", .fingerprint = "f"});
  const std::string head =
      R"(data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"m\"","system_fingerprint":"f","choices":[{"index":)";
  const std::string tail = R"(},"logprobs":null,"finish_reason":null}]})"
                           "\n\n";
  EXPECT_EQ(plain(sent.of(*writer, {piece("a\n"), piece("\"\\\x01\xc3\xa9", 1), piece("")})),
            head + R"(0,"delta":{"content":"a\n")" + tail + head + R"(1,"delta":{"content":"\"\\\u0001é")" + tail);
  GenerationEvent end;
  end.kind = GenerationEvent::Kind::finished;
  end.reason = FinishReason::length;
  EXPECT_EQ(plain(sent.of(*writer, {end})), head + R"(0,"delta":{},"logprobs":null,"finish_reason":"length"}]})"
                                                   "\n\n");
}

TEST(AnswerText, OpenAiCompletionWithUsage) {
  const Sent sent;
  OpenAiRequest request;
  request.stream = true;
  request.include_usage = true;
  const auto writer =
      make_openai_writer(sent.exchange(), OpenAiForm::completion, request, {.model = "m", .fingerprint = "f"});
  EXPECT_EQ(plain(sent.of(*writer, {piece("x")})),
            R"(data: {"id":"ID","object":"text_completion","created":0,"model":"m","system_fingerprint":"f",)"
            R"("choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":null}],"usage":null})"
            "\n\n");
}

TEST(AnswerText, Ollama) {
  for (const bool chat : {false, true}) {
    const Sent sent;
    OllamaRequest request;
    request.model = "m\n";
    const auto writer = make_ollama_writer(sent.exchange(), chat ? OllamaForm::chat : OllamaForm::generate, request);
    const std::string text = chat ? R"("message":{"role":"assistant","content":"a\tb"})" : R"("response":"a\tb")";
    const std::string line = R"({"model":"m\n","created_at":"TIME",)" + text + ",\"done\":false}\n";
    EXPECT_EQ(plain(sent.of(*writer, {piece("a\tb"), piece("a\tb")})), line + line);
  }
}

TEST(AnswerText, RatesHaveTwoDigits) {
  const auto rate = [](float value) {
    std::string text;
    append_payload(text, {.text = "", .token = -1, .tokens_per_second = value}, "");
    const std::size_t at = text.find("_sec\":") + 6;
    return text.substr(at, text.size() - at - 1);
  };
  EXPECT_EQ(rate(0.0f), "0.00");
  EXPECT_EQ(rate(0.004f), "0.00");
  EXPECT_EQ(rate(0.006f), "0.01");
  EXPECT_EQ(rate(9.999f), "10.00");
  EXPECT_EQ(rate(41.2f), "41.20");
  EXPECT_EQ(rate(123456.0f), "123456.00");
}

}  // namespace
}  // namespace quarrel
