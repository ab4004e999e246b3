// A WebSocket's session, without its socket.
#include "server/ws_session.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "server/resumable.h"
#include "server/served_toy.h"

namespace quarrel {
namespace {

// What became of the requests that have ended.
struct KeptFacts : RequestObserver {
  void ended(const RequestFacts& facts) override { kept.push_back(facts); }
  std::vector<RequestFacts> kept;
};

class Nobody final : public AnswerReceiver {
 public:
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent>, const ResumePoint&) override { return false; }
};

// A small message is read where it came.
constexpr std::size_t kSmall = 1024;

class WsSession : public test::ServedToy {
 protected:
  explicit WsSession(const SocketOptions& sockets = {}) : ServedToy({.sockets = sockets}) {}

  std::shared_ptr<SocketSession> session(const KeyLimits& limits = {}) {
    const auto caller = std::make_shared<const Caller>(Caller{.key = 7, .limits = limits});
    const auto request = std::make_shared<http::Request>(
        http::Request{.record = service_->new_record({.route = "GET /ws", .caller = caller})});
    socket_ = std::make_shared<http::WebSocket>(request, std::size_t{1} << 20, [] {});
    return std::make_shared<SocketSession>(*service_, socket_);
  }

  static std::string ping(const std::string& id, std::size_t size) {
    std::string text = R"({"type":"ping","id":")" + id + "\"}";
    text.resize(size, ' ');
    return text;
  }
  // The frames that the session has sent since the last call.
  std::string sent() { return socket_->take().frames; }

  std::shared_ptr<http::WebSocket> socket_;
};

// One message, and no other for minutes.
class HurriedWsSession : public WsSession {
 protected:
  HurriedWsSession() : WsSession({.messages_per_second = 0.001}) {}
};

TEST_F(WsSession, BeginsAnAnswer) {
  const auto open = session();
  open->message(R"({"type":"inference","id":"a","payload":{"prompt":"Hello","max_tokens":2,"resume":true}})", {});
  EXPECT_EQ(service_->sockets().answers().size(), 1u);
  finish_text_work();
}

// A long message may still be read when its connection goes.
TEST_F(WsSession, ThatIsClosedBeginsNone) {
  const auto gone = session();
  gone->closed();
  gone->message(R"({"type":"inference","id":"a","payload":{"prompt":"Hello","max_tokens":2,"resume":true}})", {});
  EXPECT_EQ(service_->sockets().answers().size(), 0u);
  finish_text_work();
  EXPECT_TRUE(service_->registry().list().empty());
}

TEST_F(WsSession, LeavesAllButSmallMessagesToTheThreadsForTexts) {
  const auto open = session();
  const test::Gate texts = hold_text_work();
  open->message(ping("small", kSmall), {});
  EXPECT_NE(sent().find(R"("id":"small")"), std::string::npos);
  open->message(ping("large", kSmall + 1), {});
  EXPECT_EQ(sent(), "");
  texts.open();
  finish_text_work();
  EXPECT_NE(sent().find(R"("id":"large")"), std::string::npos);
}

TEST_F(HurriedWsSession, ReadsOnlySmallMessagesThatItRefuses) {
  const auto open = session();
  open->message(ping("first", kSmall), {});
  EXPECT_NE(sent().find(R"("connected":true)"), std::string::npos);
  open->message(ping("small", kSmall), {});
  EXPECT_NE(sent().find(R"("id":"small","payload":{"code":"RATE_LIMITED")"), std::string::npos);
  for (const std::size_t size : {kSmall + 1, 16 * kSmall, 1024 * kSmall}) {
    open->message(ping("large", size), {});
    const std::string said = sent();
    EXPECT_NE(said.find(R"("payload":{"code":"RATE_LIMITED")"), std::string::npos) << size;
    EXPECT_EQ(said.find(R"("id":"large")"), std::string::npos) << size;
  }
}

// One answer at a time.
class NarrowWsSession : public WsSession {
 protected:
  NarrowWsSession() : WsSession({.running = 1}) { service_->observe(facts_); }

  static std::string question(const std::string& id, const std::string& more = {}) {
    return R"({"type":"inference","id":")" + id + R"(","payload":{"prompt":"Hello","max_tokens":2)" + more + "}}";
  }
  const std::shared_ptr<KeptFacts> facts_ = std::make_shared<KeptFacts>();
};

// As over HTTP: whoever watches the server sees it.
TEST_F(NarrowWsSession, AQuestionThatIsRefusedHasItsRecord) {
  const auto open = session();
  const auto refused = [&](const std::string& message) {
    const std::size_t before = facts_->kept.size();
    open->message(message, {});
    EXPECT_EQ(facts_->kept.size(), before + 1) << message;
    const RequestFacts& last = facts_->kept.back();
    EXPECT_EQ(last.route, "WS /ws");
    EXPECT_FALSE(last.error.empty());
    return std::pair(last.status, last.code);
  };
  using Said = std::pair<unsigned, std::string>;
  EXPECT_EQ(refused(question("a", R"(,"temprature":1)")), Said(400, "unsupported_parameter"));
  EXPECT_EQ(refused(question("a", R"(,"seed":"x")")), Said(400, "invalid_value"));
  EXPECT_EQ(refused(R"({"type":"nonsense"})"), Said(400, "invalid_value"));
  EXPECT_EQ(refused("{"), Said(400, "invalid_json"));
  EXPECT_EQ(refused(R"({"type":"inference","payload":{"resume":"0123456789abcdef0123456789abcdef:1"}})"),
            Said(404, "answer_not_found"));
  const test::Gate texts = hold_text_work();
  open->message(question("a"), {});
  EXPECT_EQ(refused(question("a")), Said(400, "invalid_value")) << "that id runs";
  EXPECT_EQ(refused(question("b")), Said(503, "queue_full"));
  service_->begin_drain();
  EXPECT_EQ(refused(question("b")), Said(503, "draining"));
  texts.open();
  finish_text_work();
}

TEST_F(NarrowWsSession, AndCountsAgainstItsKeysLimits) {
  const auto open = session({.requests_per_minute = 4});
  const std::string id = "0123456789abcdef0123456789abcdef";
  const auto lost = [](const std::string& place) {
    return R"({"type":"inference","payload":{"resume":")" + place + "\"}}";
  };
  const auto code = [&](const std::string& message) {
    open->message(message, {});
    return facts_->kept.back().code;
  };
  EXPECT_EQ(code(lost(id + ":1")), "answer_not_found") << "there is nothing that was charged before";
  EXPECT_EQ(code(lost("no place")), "invalid_value");
  EXPECT_EQ(code("{"), "invalid_json");
  EXPECT_EQ(code(question("a", R"(,"temprature":1)")), "unsupported_parameter");
  EXPECT_EQ(code("{"), "rate_limit_exceeded");
  for (const std::string& place : {id + ":1", std::string("no place")}) {
    EXPECT_EQ(code(lost(place)), "rate_limit_exceeded") << place;
  }
  const auto runs = service_->sockets().answers().create(open->caller(), std::make_shared<Nobody>());
  const std::size_t before = facts_->kept.size();
  open->message(lost(to_text({.id = runs->id()})), {});
  EXPECT_EQ(facts_->kept.size(), before) << "what runs was charged when it began";
}

}  // namespace
}  // namespace quarrel
