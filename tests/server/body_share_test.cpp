// What a request's body says counts among all bodies for as long as somebody keeps it, not only while it is read.
#include <gtest/gtest.h>

#include "server/http/byte_budget.h"
#include "server/native_api.h"
#include "server/native_stream.h"
#include "server/openai_api.h"
#include "server/rerank_api.h"
#include "server/served_toy.h"
#include "server/text_api.h"
#include "server/ws_session.h"

namespace quarrel {
namespace {

using Handler = void (*)(Service&, const std::shared_ptr<http::Exchange>&);

class BodyShare : public test::ServedToy {
 protected:
  static constexpr std::size_t kBytes = 100;

  // A request that has been handled as the server does it, while the thread for texts has something else to do: it
  // waits for its model until `go_on_`.
  std::shared_ptr<http::Exchange> handled(Handler handler, const std::string& body) {
    service_->run_text_work([gate = go_on_.get_future().share()] { gate.wait(); });
    std::shared_ptr<http::Exchange> made = exchange(body);
    made->keep_with_body(share());
    handler(*service_, made);
    made->release_body();
    EXPECT_EQ(made->request().body, "");
    return made;
  }
  // The same for a message of a WebSocket.
  std::shared_ptr<SocketSession> told(const std::string& text) {
    service_->run_text_work([gate = go_on_.get_future().share()] { gate.wait(); });
    const auto request =
        std::make_shared<http::Request>(http::Request{.record = service_->new_record({.route = "GET /ws"})});
    auto session = std::make_shared<SocketSession>(
        *service_, std::make_shared<http::WebSocket>(request, std::size_t{1} << 20, [] {}));
    session->message(text, share());
    return session;
  }
  std::shared_ptr<http::ByteBudget::Share> share() const {
    auto made = std::make_shared<http::ByteBudget::Share>(budget_, 1);
    EXPECT_TRUE(made->grow_to(kBytes));
    return made;
  }
  bool is_given_back() const { return http::ByteBudget::Share(budget_, 1).grow_to(kBytes); }

  std::promise<void> go_on_;

 private:
  const std::shared_ptr<http::ByteBudget> budget_ = std::make_shared<http::ByteBudget>(2 * kBytes);
};

TEST_F(BodyShare, OfAQuestionIsHeldUntilTheModelHasBeenAsked) {
  std::shared_ptr<http::Exchange> asked = handled(native_generate, R"({"prompt":"Hello","max_tokens":4})");
  EXPECT_FALSE(is_given_back());
  go_on_.set_value();
  EXPECT_TRUE(test::eventually([&] { return is_given_back(); })) << "an answer may take its time";
  EXPECT_FALSE(asked->begun());
}

TEST_F(BodyShare, OfAnAnswerThatOutlivesItsConnectionToo) {
  std::shared_ptr<http::Exchange> asked = handled(native_stream, R"({"prompt":"Hello","max_tokens":4,"resume":true})");
  asked.reset();
  EXPECT_FALSE(is_given_back());
  go_on_.set_value();
  EXPECT_TRUE(test::eventually([&] { return is_given_back(); }));
}

TEST_F(BodyShare, OfAQuestionThatNobodyAsksAnyMoreGoesWithIt) {
  std::shared_ptr<http::Exchange> asked = handled(native_generate, R"({"prompt":"Hello","max_tokens":4})");
  asked.reset();
  EXPECT_TRUE(is_given_back());
  go_on_.set_value();
}

TEST_F(BodyShare, OfAMessageIsHeldUntilTheModelHasBeenAsked) {
  const auto open = told(R"({"type":"inference","payload":{"prompt":"Hello","max_tokens":4}})");
  EXPECT_FALSE(is_given_back());
  go_on_.set_value();
  EXPECT_TRUE(test::eventually([&] { return is_given_back(); }));
}

TEST_F(BodyShare, OfALongMessageGoesWithItsConnection) {
  const std::string prompt(std::size_t{20} << 10, 'x');  // longer than those that are read at once
  const auto open = told(R"({"type":"inference","payload":{"prompt":")" + prompt + R"("}})");
  EXPECT_FALSE(is_given_back());
  open->closed();
  EXPECT_TRUE(is_given_back());
  go_on_.set_value();
}

TEST_F(BodyShare, OfAMessageThatAsksForNothingHoldsNothing) {
  const auto open = told(R"({"type":"ping"})");
  EXPECT_TRUE(is_given_back());
  go_on_.set_value();
}

// Tokens, vectors and their JSON are as large as the texts.
TEST_F(BodyShare, OfTextsIsHeldUntilTheAnswerIsRead) {
  const std::pair<Handler, const char*> requests[] = {
      {openai_embeddings, R"({"input":["Hello","there"]})"},
      {rerank, R"({"query":"Hello","documents":["Hello","there"]})"},
      {tokenize, R"({"content":"Hello there"})"},
  };
  for (const auto& [handler, body] : requests) {
    go_on_ = {};
    std::shared_ptr<http::Exchange> asked = handled(handler, body);
    EXPECT_FALSE(is_given_back()) << body;
    go_on_.set_value();
    http::Exchange::Output output;
    ASSERT_TRUE(test::eventually([&] { return (output = asked->take()).has_head; }));
    EXPECT_EQ(output.head.status, 200u) << output.head.body;
    EXPECT_FALSE(is_given_back()) << body;
    finish_text_work();
    asked.reset();
    EXPECT_TRUE(is_given_back()) << body;
  }
}

}  // namespace
}  // namespace quarrel
