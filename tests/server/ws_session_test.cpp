// A WebSocket's session, without its socket.
#include "server/ws_session.h"

#include <gtest/gtest.h>

#include "server/served_toy.h"

namespace quarrel {
namespace {

class WsSession : public test::ServedToy {
 protected:
  std::shared_ptr<SocketSession> session() {
    const auto request =
        std::make_shared<http::Request>(http::Request{.record = service_->new_record({.route = "GET /ws"})});
    return std::make_shared<SocketSession>(*service_,
                                           std::make_shared<http::WebSocket>(request, std::size_t{1} << 20, [] {}));
  }
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

}  // namespace
}  // namespace quarrel
