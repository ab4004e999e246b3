// Connections where something fails: logs that cannot be written, clients that go at once, refusals that are recorded,
// an end in the middle of everything.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "server/request_record.h"
#include "server/socket_fixture.h"

namespace quarrel::http {
namespace {

class HttpFaultsTest : public SocketTest {
 protected:
  // Keeps what is refused.
  void keep_refusals() {
    refuse_ = [this](const Refusal& refusal) {
      const std::scoped_lock lock(mutex_);
      refusals_.push_back(refusal);
      return Response{.status = refusal.status, .body = refusal.message};
    };
  }
  Refusal last_refusal() {
    const std::scoped_lock lock(mutex_);
    return refusals_.empty() ? Refusal{} : refusals_.back();
  }

  std::mutex mutex_;
  std::vector<Refusal> refusals_;
};

struct FullDisk : Log {
  void write(LogLevel, std::string_view) override { throw std::bad_alloc(); }
};

TEST_F(HttpFaultsTest, ATaskThatThrowsEndsNobody) {
  log_ = std::make_unique<FullDisk>();
  serve(say_yes);
  const auto post = server_->poster();
  for (int i = 0; i < 10; ++i) post([] { throw std::runtime_error("for want of anything"); });
  const Client client(server_->port());
  client.send(kGet);
  EXPECT_TRUE(client.read_until("yes").ends_with("yes"));
}

TEST_F(HttpFaultsTest, AHandlersFaultIsLoggedAndWantOfMemoryIsNot) {
  struct Lines : Log {
    void write(LogLevel, std::string_view line) override {
      const std::scoped_lock lock(mutex);
      text += line;
    }
    std::mutex mutex;
    std::string text;
  };
  auto lines = std::make_unique<Lines>();
  Lines& log = *lines;
  log_ = std::move(lines);
  serve([](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path == "/a") throw std::bad_alloc();
    throw std::runtime_error("a fault");
  });
  for (const std::string path : {"/a", "/b"}) {
    const Client client(server_->port());
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.read_all(), "");
  }
  const std::scoped_lock lock(log.mutex);
  EXPECT_EQ(log.text, "something went wrong in a connection: a fault");
}

// It was reset before anybody accepted it, and its request lies in the socket all the same.
TEST_F(HttpFaultsTest, AClientThatHasGoneStillHasAnAddress) {
  std::promise<std::string> address;
  admit_ = [&](const Request& request) {
    address.set_value(request.address);
    return Admission{};
  };
  make(say_yes);
  Client client(server_->port());
  client.send(kGet);
  client.reset();
  server_->start();
  EXPECT_EQ(address.get_future().get(), "127.0.0.1");
}

TEST_F(HttpFaultsTest, WhatIsRefusedIsToldWithItsRecord) {
  const auto record = std::make_shared<RequestRecord>(RequestFacts{.id = "mine"}, RequestObservers{});
  admit_ = [&](const Request&) { return Admission{.body_bytes = 10, .record = record}; };
  keep_refusals();
  serve(say_yes, {.body_time = std::chrono::milliseconds(50)});
  const auto refused = [&](const std::string& text) {
    const Client client(server_->port());
    client.send(text);
    client.read_all();
    return last_refusal();
  };
  const std::string post = "POST /a HTTP/1.1\r\nHost: localhost\r\nx-request-id: mine\r\n";
  const std::vector<std::pair<unsigned, std::string>> admitted = {
      {413, "Content-Length: 11\r\n\r\n"},
      {413, "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"},
      {408, "Content-Length: 10\r\n\r\n"},
      {400, "Transfer-Encoding: chunked\r\n\r\nno size\r\n"},
      {415, "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n"},
      {417, "Expect: miracles\r\n\r\n"}};
  for (const auto& [status, rest] : admitted) {
    const Refusal refusal = refused(post + rest);
    EXPECT_EQ(refusal.status, status) << rest;
    EXPECT_EQ(refusal.request.record, record) << rest;
    EXPECT_EQ(refusal.request.id, "mine");
    EXPECT_EQ(refusal.request.path, "/a");
  }
  const Refusal early = refused("nonsense\r\n\r\n");
  EXPECT_EQ(early.status, 400u);
  EXPECT_EQ(early.request.record, nullptr);
  EXPECT_EQ(early.request.address, "127.0.0.1");
  EXPECT_NE(early.request.id, "");
  EXPECT_EQ(early.request.path, "");
  const Refusal cut = refused("POST /v1/a HTTP/1.1\r\nX: a\nY: b\r\n\r\n");
  EXPECT_EQ(cut.status, 400u);
  EXPECT_EQ(cut.request.path, "/v1/a") << "how the answer looks depends on it";
}

TEST_F(HttpFaultsTest, WhatTakesNoBodySaysSo) {
  admit_ = [](const Request&) { return Admission{}; };
  keep_refusals();
  serve(say_yes);
  for (const char* body : {"Content-Length: 2\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"}) {
    const Client client(server_->port());
    client.send(std::string("GET /a HTTP/1.1\r\nHost: localhost\r\n") + body);
    client.read_all();
    EXPECT_EQ(last_refusal().status, 400u);
    EXPECT_EQ(last_refusal().message, "this request takes no body");
  }
}

TEST_F(HttpFaultsTest, AnUncompressedBodyMaySaySo) {
  serve(say_yes);
  const Client client(server_->port());
  client.send("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_TRUE(client.read_until("yes").ends_with("yes"));
}

TEST_F(HttpFaultsTest, AnUpgradeWhileDrainingIsRefusedWithItsRecord) {
  const auto record = std::make_shared<RequestRecord>(RequestFacts{}, RequestObservers{});
  admit_ = [&](const Request&) { return Admission{.record = record}; };
  keep_refusals();
  serve([this](const std::shared_ptr<Exchange>& exchange) {
    server_->begin_drain();
    exchange->upgrade("", [](const std::shared_ptr<WebSocket>&) { return std::shared_ptr<WebSocketHandler>(); });
  });
  const Client client(server_->port());
  client.send(
      "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 503 "));
  EXPECT_EQ(last_refusal().status, 503u);
  EXPECT_EQ(last_refusal().request.record, record);
}

// A writer that has found its connection alive may post to it after it has ended: the server has to be there still.
TEST_F(HttpFaultsTest, TheEndAmidWriters) {
  for (int round = 0; round < 40; ++round) {
    std::mutex mutex;
    std::vector<std::thread> writers;
    serve([&](const std::shared_ptr<Exchange>& exchange) {
      exchange->begin({});
      const std::scoped_lock lock(mutex);
      writers.emplace_back([exchange] {
        while (exchange->write("piece")) continue;
      });
    });
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Client>(server_->port()));
      clients.back()->send(kGet);
      clients.back()->read_until("piece");
    }
    server_.reset();
    for (std::thread& writer : writers) writer.join();
  }
}

}  // namespace
}  // namespace quarrel::http
