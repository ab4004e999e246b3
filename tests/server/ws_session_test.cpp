// A WebSocket's session, without its socket.
#include "server/ws_session.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

#include "server/served_toy.h"

namespace quarrel {
namespace {

// A small message is read where it came.
constexpr std::size_t kSmall = 1024;

class WsSession : public test::ServedToy {
 protected:
  explicit WsSession(const SocketOptions& sockets = {}) : ServedToy({.sockets = sockets}) {}

  std::shared_ptr<SocketSession> session() {
    const auto request =
        std::make_shared<http::Request>(http::Request{.record = service_->new_record({.route = "GET /ws"})});
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
  std::promise<void> busy, free;
  service_->run_text_work([&] {
    busy.set_value();
    free.get_future().wait();
  });
  busy.get_future().wait();
  open->message(ping("small", kSmall), {});
  EXPECT_NE(sent().find(R"("id":"small")"), std::string::npos);
  open->message(ping("large", kSmall + 1), {});
  EXPECT_EQ(sent(), "");
  free.set_value();
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

}  // namespace
}  // namespace quarrel
