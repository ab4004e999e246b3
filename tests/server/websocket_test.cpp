// WebSockets over sockets, with handlers of the test's own: what a handler is told and when, limits, the server's end.
#include "server/http/websocket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "server/socket_fixture.h"

namespace quarrel::http {
namespace {

constexpr std::string_view kUpgrade =
    "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

// With a mask of zeros the payload stands there as it is.
std::string frame(unsigned first, std::string_view payload) {
  return std::string{static_cast<char>(first), static_cast<char>(0x80 | payload.size()), 0, 0, 0, 0} +
         std::string(payload);
}

// Tells the test all that it is told.
class Recorder : public WebSocketHandler {
 public:
  void message(std::string text, std::shared_ptr<void> share) override {
    if (text == "throw") throw std::bad_alloc();
    const std::scoped_lock lock(mutex_);
    if (keeps) kept_.push_back(std::move(share));
    messages_.push_back(std::move(text));
  }
  void closed() override {
    ++closed_count;
    closed_.set_value();
  }
  bool drain() override { return waits; }

  void wait_closed() { closed_.get_future().wait(); }
  std::vector<std::string> messages() {
    const std::scoped_lock lock(mutex_);
    return messages_;
  }

  void let_go() {
    const std::scoped_lock lock(mutex_);
    kept_.clear();
  }

  std::atomic<int> closed_count = 0;
  bool waits = false;
  bool keeps = false;  // what messages hold among all bodies

 private:
  std::mutex mutex_;
  std::vector<std::string> messages_;
  std::vector<std::shared_ptr<void>> kept_;
  std::promise<void> closed_;
};

class WebSocketTest : public SocketTest {
 protected:
  void serve_one(Limits limits = {}, std::string protocol = "") {
    serve(
        [this, protocol](const std::shared_ptr<Exchange>& exchange) {
          exchange->upgrade(protocol, [this](const std::shared_ptr<WebSocket>& socket) {
            made_.set_value(socket);
            return handler_;
          });
        },
        limits);
  }
  std::shared_ptr<WebSocket> open(const Client& client) {
    client.send(kUpgrade);
    head_ = client.read_until("\r\n\r\n");
    return made_.get_future().get();
  }
  void TearDown() override {
    server_.reset();
    EXPECT_LE(handler_->closed_count, 1);
  }

  std::shared_ptr<Recorder> handler_ = std::make_shared<Recorder>();
  std::promise<std::shared_ptr<WebSocket>> made_;
  std::string head_;
};

TEST_F(WebSocketTest, SpeaksBothWays) {
  serve_one({}, "quarrel.v1");
  const Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  EXPECT_TRUE(head_.starts_with("HTTP/1.1 101 ")) << head_;
  EXPECT_NE(head_.find("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), std::string::npos);
  EXPECT_NE(head_.find("Sec-WebSocket-Protocol: quarrel.v1\r\n"), std::string::npos);
  EXPECT_EQ(socket->request().path, "/ws");
  EXPECT_TRUE(socket->send("one"));
  EXPECT_TRUE(socket->send("two"));
  EXPECT_EQ(client.read_exactly(10), "\x81\x03one\x81\x03two");
  client.send(frame(0x81, "hello") + frame(0x89, "p") + frame(0x88, "\x03\xe8"));
  EXPECT_EQ(client.read_all(), "\x8a\x01p\x88\x02\x03\xe8");
  handler_->wait_closed();
  EXPECT_EQ(handler_->messages(), std::vector<std::string>{"hello"});
  EXPECT_FALSE(socket->send("late"));
}

TEST_F(WebSocketTest, AClientThatVanishesIsNoticed) {
  serve_one();
  Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  client.leave();
  handler_->wait_closed();
  EXPECT_FALSE(socket->send("late"));
}

TEST_F(WebSocketTest, AHandlerThatThrowsIsClosedWith1011) {
  serve_one();
  const Client client(server_->port());
  open(client);
  client.send(frame(0x81, "throw") + frame(0x81, "late"));
  EXPECT_TRUE(client.read_until("here").starts_with("\x88\x17\x03\xf3"));
  client.send(frame(0x88, "\x03\xf3"));
  EXPECT_EQ(client.read_all(), "");
  handler_->wait_closed();
  EXPECT_TRUE(handler_->messages().empty());
}

TEST_F(WebSocketTest, AHandlerThatCannotBeMadeEndsItsConnectionAlone) {
  serve([](const std::shared_ptr<Exchange>& exchange) {
    exchange->upgrade("", [](const auto&) -> std::shared_ptr<WebSocketHandler> { throw std::bad_alloc(); });
  });
  const Client client(server_->port());
  client.send(kUpgrade);
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(WebSocketTest, ASilentClientGetsAPingAndIsCut) {
  serve_one({.websocket_ping_time = std::chrono::milliseconds(50)});
  const Client client(server_->port());
  open(client);
  EXPECT_EQ(client.read_all(), std::string("\x89\x00", 2));
  handler_->wait_closed();
}

TEST_F(WebSocketTest, NothingSaidForLongClosesIt) {
  serve_one({.websocket_idle_time = std::chrono::milliseconds(100)});
  const Client client(server_->port());
  open(client);
  std::future<std::string> closed = std::async(std::launch::async, [&] { return client.read_until("\x03\xe8"); });
  while (closed.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
    client.try_send(frame(0x8a, ""));  // alive, but silent
  }
  EXPECT_TRUE(closed.get().starts_with("\x88"));
}

TEST_F(WebSocketTest, ABroadcastIsNotAMessage) {
  serve_one({.websocket_idle_time = std::chrono::seconds(1)});
  const Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  EXPECT_TRUE(socket->broadcast("news"));
  std::future<std::string> closed = std::async(std::launch::async, [&] { return client.read_until("\x03\xe8"); });
  while (closed.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) socket->broadcast("news");
  EXPECT_TRUE(closed.get().starts_with("\x81\x04news"));
}

// It has said goodbye, and hears the rest: whether it lives is not asked any more.
TEST_F(WebSocketTest, AClientThatHasClosedIsNotPinged) {
  constexpr std::size_t kLong = 16 << 20;  // no socket's buffers hold it
  const std::string text(kLong, 'x');
  serve_one({.websocket_ping_time = std::chrono::seconds(2)});
  const Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  client.send(frame(0x8a, ""));  // it is there
  EXPECT_TRUE(socket->send(text));
  client.send(frame(0x88, "\x03\xe8"));
  // Whoever was silent for so long would be cut.
  std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  const std::string all = client.read_exactly(10 + kLong + 4 + 2);  // a ping may have come before
  EXPECT_GE(all.size(), 10 + kLong + 4);
  EXPECT_TRUE(all.ends_with("\x88\x02\x03\xe8"));
}

TEST_F(WebSocketTest, AReaderThatReadsNothingIsGivenUp) {
  serve_one({.buffered_bytes = 1'000'000, .write_time = std::chrono::milliseconds(200)});
  const Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  while (socket->send(std::string(100'000, 'x'))) std::this_thread::yield();
  handler_->wait_closed();
}

TEST_F(WebSocketTest, PingsThatNobodyReadsTheAnswersOfAreNotGathered) {
  serve_one({.buffered_bytes = 100'000, .write_time = std::chrono::seconds(60)});
  const Client client(server_->port());
  open(client);
  std::string pings;
  for (int i = 0; i < 1000; ++i) pings += frame(0x89, std::string(125, 'p'));
  while (client.try_send(pings)) continue;
  handler_->wait_closed();
}

TEST_F(WebSocketTest, DrainingClosesWhatHasNothingToWaitFor) {
  serve_one();
  const Client client(server_->port());
  open(client);
  server_->begin_drain();
  EXPECT_TRUE(client.read_until("end").starts_with("\x88\x1c\x03\xe9"));
  client.send(frame(0x88, "\x03\xe9"));
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(60)));
}

TEST_F(WebSocketTest, DrainingWaitsForAHandlerThatWantsIt) {
  handler_->waits = true;
  serve_one();
  const Client client(server_->port());
  const std::shared_ptr<WebSocket> socket = open(client);
  server_->begin_drain();
  EXPECT_FALSE(server_->wait_idle(std::chrono::milliseconds(20)));
  EXPECT_TRUE(socket->send("last"));
  socket->close(CloseCode::going_away, "done");
  EXPECT_EQ(client.read_exactly(14),
            "\x81\x04last\x88\x06\x03\xe9"
            "done");
  client.send(frame(0x88, "\x03\xe9"));
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(60)));
}

TEST_F(WebSocketTest, TheServersEndIsSaid) {
  handler_->waits = true;
  serve_one();
  const Client client(server_->port());
  open(client);
  server_.reset();
  EXPECT_TRUE(client.read_all().starts_with("\x88\x16\x03\xe9"));
  EXPECT_EQ(handler_->closed_count, 1);
}

TEST_F(WebSocketTest, WhatIsNoneIsRefused) {
  serve_one();
  const auto answer = [&](std::string request) {
    const Client client(server_->port());
    client.send(request);
    return client.read_until("\r\n\r\n");
  };
  const std::string upgrade(kUpgrade);
  EXPECT_TRUE(answer("GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 426 "));
  EXPECT_TRUE(answer(upgrade + frame(0x81, "early")).starts_with("HTTP/1.1 400 "));
  std::string old = upgrade;
  EXPECT_TRUE(answer(old.replace(old.find("1.1"), 3, "1.0")).starts_with("HTTP/1.0 400 "));
  server_->begin_drain();
  EXPECT_TRUE(answer(upgrade).starts_with("HTTP/1.1 503 "));
}

// Messages, and bodies of requests, of which 100 bytes fit on one account and 200 on all together.
class MessageRoomTest : public SocketTest {
 protected:
  void SetUp() override {
    admit_ = [](const Request& request) {
      return Admission{.body_bytes = 100, .account = request.path == "/other" ? 2u : 1u};
    };
    serve(
        [this](const std::shared_ptr<Exchange>& exchange) {
          if (exchange->request().method == "POST") return exchange->respond({.body = "yes"});
          exchange->upgrade("", [this](const std::shared_ptr<WebSocket>&) {
            auto handler = std::make_shared<Recorder>();
            handler->keeps = true;
            const std::scoped_lock lock(mutex_);
            handlers_.push_back(handler);
            return handler;
          });
        },
        {.body_bytes_together = 200});
  }
  std::shared_ptr<Recorder> open(const Client& client) {
    client.send(kUpgrade);
    client.read_until("\r\n\r\n");
    const std::scoped_lock lock(mutex_);
    return handlers_.back();
  }
  // When it returns, all that was sent before has been read.
  static void settle(const Client& client) {
    client.send(frame(0x89, "p"));
    EXPECT_EQ(client.read_exactly(3), "\x8a\x01p");
  }
  static void expect_refused(const Client& client) {
    EXPECT_EQ(client.read_until("at the moment"), "\x88\x31\x03\xf5there are too many large requests at the moment");
  }
  std::string post(const std::string& path) const {
    const Client client(server_->port());
    client.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    client.end_sending();
    return client.read_all();
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Recorder>> handlers_;
};

TEST_F(MessageRoomTest, WhatHasComeOfAMessageCountsAmongAllBodies) {
  const Client first(server_->port()), second(server_->port()), third(server_->port());
  const std::shared_ptr<Recorder> handler = open(first);
  open(second);
  open(third);
  first.send(frame(0x01, std::string(60, 'x')));  // the message goes on
  third.send(frame(0x01, std::string(40, 'x')));
  settle(first);
  settle(third);
  EXPECT_TRUE(post("/a").starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(post("/other").ends_with("yes")) << "somebody else's";
  second.send(frame(0x01, "y"));
  expect_refused(second);
  // Who sends the byte too much is closed, not who held the others.
  first.send(frame(0x80, "x"));
  expect_refused(first);
  EXPECT_TRUE(handler->messages().empty());
  handler->wait_closed();
  while (!post("/a").ends_with("yes")) std::this_thread::yield();  // what it held is given back with its connection
}

// However alive its client is otherwise.
TEST_F(WebSocketTest, AMessageThatDoesNotEndIsClosedInTime) {
  serve_one({.body_time = std::chrono::milliseconds(100)});
  const Client client(server_->port());
  open(client);
  client.send(frame(0x01, "it begins"));
  EXPECT_EQ(client.read_until("in time"), "\x88\x2c\x03\xf0the rest of a message did not come in time");
  handler_->wait_closed();
}

TEST_F(WebSocketTest, AMessageThatEndsInTimeHasNoLimitAfterwards) {
  serve_one({.body_time = std::chrono::milliseconds(1000)});
  const Client client(server_->port());
  open(client);
  client.send(frame(0x01, "it begins"));
  client.send(frame(0x80, " and ends"));
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  client.send(frame(0x89, "p"));
  EXPECT_EQ(client.read_exactly(3), "\x8a\x01p");
  EXPECT_EQ(handler_->messages(), std::vector<std::string>{"it begins and ends"});
}

TEST_F(MessageRoomTest, AMessageThatCouldNeverFitIsTooLarge) {
  const Client client(server_->port());
  open(client);
  client.send(frame(0x81, std::string(101, 'x')));
  EXPECT_EQ(client.read_until("too large"), "\x88\x1a\x03\xf1the message is too large");
}

TEST_F(MessageRoomTest, AMessageCountsForAsLongAsItIsKept) {
  const Client first(server_->port()), second(server_->port()), third(server_->port());
  const std::shared_ptr<Recorder> handler = open(first);
  first.send(frame(0x81, std::string(60, 'x')));
  first.send(frame(0x81, std::string(40, 'x')));
  settle(first);
  EXPECT_EQ(handler->messages().size(), 2u);
  open(second);
  second.send(frame(0x81, "y"));
  expect_refused(second);
  handler->let_go();
  const std::shared_ptr<Recorder> last = open(third);
  third.send(frame(0x81, std::string(100, 'z')));
  settle(third);
  EXPECT_EQ(last->messages().size(), 1u);
}

// Messages from several threads, clients that leave, and the end, all at once.
TEST_F(WebSocketTest, AStormEndsWell) {
  std::mutex mutex;
  std::vector<std::thread> workers;
  std::atomic<int> made = 0, closed = 0;
  struct Counter : WebSocketHandler {
    explicit Counter(std::atomic<int>& count) : count_(count) {}
    void message(std::string, std::shared_ptr<void>) override {}
    void closed() override { ++count_; }
    std::atomic<int>& count_;
  };
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    exchange->upgrade("", [&](const std::shared_ptr<WebSocket>& socket) {
      ++made;
      const std::scoped_lock lock(mutex);
      for (int i = 0; i < 2; ++i) {
        workers.emplace_back([socket] {
          for (int k = 0; k < 50 && socket->send("piece"); ++k) std::this_thread::yield();
          socket->close(CloseCode::normal, "enough");
        });
      }
      return std::make_shared<Counter>(closed);
    });
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([this, i] {
      for (int k = 0; k < 5; ++k) {
        const Client client(server_->port());
        if (!client.connected()) return;
        client.send(kUpgrade);
        if ((i + k) % 3 != 0) client.read_until("enough");
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server_.reset();
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(made, closed);
}

}  // namespace
}  // namespace quarrel::http
