// A WebSocket's session when memory runs out.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>

#include "server/served_toy.h"
#include "server/ws_session.h"
#include "support/failing_allocation.h"

namespace quarrel {
namespace {

constexpr std::size_t kLarge = 3 * 1024 * 1024;  // of the 4 MiB that may wait

class WsMemory : public test::ServedToy {
 protected:
  WsMemory() : ServedToy({.sockets = {.messages_per_second = 1e6}}) {}

  std::shared_ptr<http::WebSocket> socket_ = std::make_shared<http::WebSocket>(
      std::make_shared<http::Request>(http::Request{.record = service_->new_record({.route = "GET /ws"})}),
      std::size_t{1} << 20, [] {});
};

TEST_F(WsMemory, AMessageThatIsNotKeptTakesNoRoom) {
  const auto session = std::make_shared<SocketSession>(*service_, socket_);
  const test::Gate texts = hold_text_work();
  session->message(std::string(2000, ' '), {});  // those behind it wait too
  const auto is_kept = [&](std::size_t size) {
    std::string text(size, ' ');
    test::fail_allocation(0);
    try {
      session->message(std::move(text), {});
    } catch (const std::bad_alloc&) {
      test::fail_no_allocation();
      return false;
    }
    test::fail_no_allocation();
    return true;
  };
  int kept = 0;  // where the queue has room for them
  while (is_kept(2000)) ASSERT_LT(++kept, 200);
  EXPECT_FALSE(is_kept(kLarge));
  session->message(std::string(kLarge, ' '), {});
  EXPECT_EQ(socket_->take().frames, "") << "it was refused";
  texts.open();
  finish_text_work();
}

}  // namespace
}  // namespace quarrel
