// Connections with a handler of the test's own: deadlines, limits, clients that leave, the end.
#include "server/http/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/socket_fixture.h"

namespace quarrel::http {
namespace {

using HttpServerTest = SocketTest;

TEST_F(HttpServerTest, AHeadThatDoesNotComeInTimeIsAnswered) {
  serve(say_yes, {.header_time = std::chrono::milliseconds(50)});
  const Client client(server_->port());
  client.send("GET /a HTTP/1.1\r\nHost:");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 408 "));
}

TEST_F(HttpServerTest, ABodyThatDoesNotComeInTimeIsAnswered) {
  serve(say_yes, {.body_time = std::chrono::milliseconds(50)});
  const Client client(server_->port());
  client.send("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12");
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 408 "));
}

TEST_F(HttpServerTest, AnIdleConnectionEndsWithoutAWord) {
  serve(say_yes, {.idle_time = std::chrono::milliseconds(50)});
  const Client client(server_->port());
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticed) {
  std::promise<void> handled, closed;
  std::shared_ptr<Exchange> kept;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    kept = exchange;
    exchange->begin({});
    exchange->on_closed([&] { closed.set_value(); });
    handled.set_value();
  });
  Client client(server_->port());
  client.send(kGet);
  handled.get_future().wait();
  client.leave();
  closed.get_future().wait();
  EXPECT_FALSE(kept->write("late"));
}

// The byte keeps the socket readable, so that its end alone cannot be waited for.
TEST_F(HttpServerTest, AClientThatLeavesBehindItsNextRequestIsNoticed) {
  std::promise<void> handled, closed;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    exchange->begin({});
    exchange->on_closed([&] { closed.set_value(); });
    handled.set_value();
  });
  const Client client(server_->port());
  client.send(kGet);
  handled.get_future().wait();
  client.send("G");
  client.read_until("\r\n\r\n");
  client.end_sending();
  closed.get_future().wait();
}

TEST_F(HttpServerTest, ARequestThatComesEarlyIsAnsweredInItsTurn) {
  std::promise<std::shared_ptr<Exchange>> first;
  std::atomic<int> calls = 0;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    if (++calls == 1) {
      first.set_value(exchange);
    } else {
      say_yes(exchange);
    }
  });
  const Client client(server_->port());
  client.send(std::string(kGet) + std::string(kGet));
  const std::shared_ptr<Exchange> exchange = first.get_future().get();
  EXPECT_EQ(calls, 1);
  exchange->respond({.body = "first"});
  const std::string answers = client.read_until("yes");
  EXPECT_LT(answers.find("first"), answers.find("yes"));
}

// There is no read that waits, and that could be cancelled, while the next bytes are always there.
TEST_F(HttpServerTest, ABodyThatNeverEndsIsGivenUp) {
  admit_ = [](const Request&) { return Admission{.body_bytes = std::size_t{1} << 30}; };
  serve(say_yes, {.body_time = std::chrono::milliseconds(50)});
  const Client client(server_->port());
  client.send("POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::atomic<bool> heard = false;
  std::thread sender([&] {
    std::string chunks;  // of a byte each, with as much beside it that is no part of the body
    for (int i = 0; i < 256; ++i) chunks += "1;" + std::string(1000, 'x') + "\r\na\r\n";
    while (!heard && client.try_send(chunks)) continue;
  });
  EXPECT_TRUE(client.read_until("HTTP/1.1 408 ").starts_with("HTTP/1.1 408 "));
  heard = true;
  sender.join();
}

class BodiesTest : public SocketTest {
 protected:
  // The first request stays unanswered.
  void serve_bodies(std::size_t together) {
    admit_ = [](const Request& request) {
      return Admission{.body_bytes = 100, .account = std::stoull(std::string(request.header("x-account")))};
    };
    serve(
        [this](const std::shared_ptr<Exchange>& exchange) {
          if (++calls_ == 1) {
            first_.set_value(exchange);
          } else {
            say_yes(exchange);
          }
        },
        {.body_bytes_together = together});
  }
  static std::string post(int account, std::size_t size) {
    return "POST /a HTTP/1.1\r\nHost: localhost\r\nx-account: " + std::to_string(account) +
           "\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n" + std::string(size, 'x');
  }
  std::string answer_to(const std::string& request) const {
    const Client client(server_->port());
    client.send(request);
    client.end_sending();
    return client.read_all();
  }

  std::promise<std::shared_ptr<Exchange>> first_;
  std::atomic<int> calls_ = 0;
};

TEST_F(BodiesTest, AllTogetherAreBounded) {
  serve_bodies(200);
  const Client large(server_->port());
  large.send(post(1, 100));
  std::shared_ptr<Exchange> running = first_.get_future().get();
  EXPECT_TRUE(answer_to(post(2, 100)).ends_with("yes"));
  std::string answer = answer_to(post(1, 1));  // one account has half of it at most
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
  running->respond({.body = "done"});
  running.reset();
  EXPECT_NE(large.read_until("done"), "");
  large.send(post(1, 100));  // what the answer before held has been given back
  EXPECT_NE(large.read_until("yes"), "");
}

TEST_F(BodiesTest, OneThatCouldNeverFitIsTooLarge) {
  serve_bodies(100);
  EXPECT_TRUE(answer_to(post(1, 51)).starts_with("HTTP/1.1 413 ")) << "another try would not help";
  EXPECT_EQ(calls_, 0);
}

TEST_F(BodiesTest, ABodyThatHasBeenReadHoldsNothing) {
  serve_bodies(200);
  const Client large(server_->port());
  large.send(post(1, 100));
  const std::shared_ptr<Exchange> running = first_.get_future().get();
  EXPECT_EQ(running->request().body.size(), 100u);
  running->release_body();
  EXPECT_EQ(running->request().body, "");
  EXPECT_TRUE(answer_to(post(1, 100)).ends_with("yes"));
  running->respond({.body = "done"});
  EXPECT_NE(large.read_until("done"), "");
}

TEST_F(HttpServerTest, AnAddressMakesRoomForItself) {
  serve(say_yes, {.connections_per_local_address = 2});
  const Client first(server_->port()), second(server_->port());
  first.send("GET");
  second.send(kGet);
  EXPECT_NE(second.read_until("yes"), "");
  const Client third(server_->port());
  EXPECT_EQ(first.read_all(), "");
  third.send(kGet);
  EXPECT_NE(third.read_until("yes"), "");
}

TEST_F(HttpServerTest, ThisMachineHasNoLimitOfItsOwn) {
  serve(say_yes, {.connections_per_address = 1});
  const Client first(server_->port()), second(server_->port()), third(server_->port());
  for (const Client* client : {&first, &second, &third}) {
    client->send(kGet);
    EXPECT_NE(client->read_until("yes").find("yes"), std::string::npos);
  }
}

TEST_F(HttpServerTest, AnAddressWhoseConnectionsAllWorkGetsNoMore) {
  std::promise<std::shared_ptr<Exchange>> running;
  serve([&](const std::shared_ptr<Exchange>& exchange) { running.set_value(exchange); },
        {.connections_per_local_address = 1});
  const Client first(server_->port());
  first.send(kGet);
  const std::shared_ptr<Exchange> exchange = running.get_future().get();
  const Client second(server_->port());
  EXPECT_EQ(second.read_all(), "");
  exchange->respond({.body = "done"});
  EXPECT_NE(first.read_until("done"), "");
}

TEST_F(HttpServerTest, SeveralPortsAreOneServer) {
  serve(say_yes, {}, 2, {0, 0});
  ASSERT_EQ(server_->ports().size(), 3u);
  for (const std::uint16_t port : server_->ports()) {
    const Client client(port);
    client.send(kGet);
    EXPECT_NE(client.read_until("yes"), "");
  }
  const ServerOptions taken{.port = 0, .further_ports = {server_->port()}};
  EXPECT_THROW(HttpServer(taken, {}, *log_), Error);
}

// A long prompt is read in silence, and whoever stands between gives up on silent streams.
TEST_F(HttpServerTest, ASilentStreamOfEventsGetsComments) {
  std::promise<std::shared_ptr<Exchange>> running;
  serve([&](const std::shared_ptr<Exchange>& exchange) { running.set_value(exchange); },
        {.comment_time = std::chrono::milliseconds(5)});
  const Client client(server_->port());
  const auto comes = [&](std::string_view words) { return client.read_until(words).find(words) != std::string::npos; };
  client.send(kGet);
  const std::shared_ptr<Exchange> exchange = running.get_future().get();
  exchange->begin(stream_head("text/event-stream"));
  EXPECT_TRUE(comes("3\r\n:\n\n\r\n3\r\n:\n\n\r\n"));
  exchange->write("data: x\n\n");
  EXPECT_TRUE(comes("9\r\ndata: x\n\n\r\n"));
  exchange->finish();
  EXPECT_TRUE(comes("0\r\n\r\n"));
}

TEST_F(HttpServerTest, OtherStreamsGetNone) {
  std::promise<std::shared_ptr<Exchange>> running;
  serve([&](const std::shared_ptr<Exchange>& exchange) { running.set_value(exchange); },
        {.comment_time = std::chrono::milliseconds(1)});
  const Client client(server_->port());
  client.send(kGet);
  const std::shared_ptr<Exchange> exchange = running.get_future().get();
  exchange->begin(stream_head("application/x-ndjson"));
  std::string text = client.read_until("\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  exchange->write("{}\n");
  exchange->finish();
  text += client.read_until("0\r\n\r\n");
  EXPECT_NE(text.find("{}"), std::string::npos);
  EXPECT_EQ(text.find(":\n\n"), std::string::npos);
}

TEST_F(HttpServerTest, AnAnswerThatIsAbandonedIsNotWhole) {
  serve([](const std::shared_ptr<Exchange>& exchange) {
    exchange->begin({});
    exchange->write("half");
    exchange->abandon();
  });
  const Client client(server_->port());
  client.send(kGet);
  EXPECT_EQ(client.read_all().find("0\r\n\r\n"), std::string::npos);
  // Without chunks nothing but the connection's end says that an answer is whole.
  std::promise<std::shared_ptr<Exchange>> begun;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    exchange->begin({});
    exchange->write("half");
    begun.set_value(exchange);
  });
  const Client old(server_->port());
  old.send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_until("half"), "");
  begun.get_future().get()->abandon();
  EXPECT_TRUE(old.ends_with_reset());
}

TEST_F(HttpServerTest, BytesThatNobodyReadsDoNotCostTheAnswer) {
  serve(say_yes);
  const Client client(server_->port());
  client.send("GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" + std::string(100'000, 'x'));
  client.end_sending();
  EXPECT_FALSE(client.ends_with_reset());
}

TEST_F(HttpServerTest, AHandlerThatThrowsEndsItsConnectionAlone) {
  std::atomic<int> calls = 0;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    if (++calls == 1) throw std::bad_alloc();
    say_yes(exchange);
  });
  const Client first(server_->port()), second(server_->port());
  first.send(kGet);
  EXPECT_EQ(first.read_all(), "");
  second.send(kGet);
  EXPECT_TRUE(second.read_until("yes").ends_with("yes"));
}

TEST_F(HttpServerTest, AReaderThatReadsNothingIsGivenUp) {
  std::promise<void> closed;
  std::promise<std::shared_ptr<Exchange>> begun;
  serve(
      [&](const std::shared_ptr<Exchange>& exchange) {
        exchange->begin({});
        exchange->on_closed([&] { closed.set_value(); });
        begun.set_value(exchange);
      },
      {.buffered_bytes = 1'000'000, .write_time = std::chrono::milliseconds(200)});
  const Client client(server_->port());
  client.send(kGet);
  const std::shared_ptr<Exchange> exchange = begun.get_future().get();
  while (exchange->write(std::string(100'000, 'x'))) std::this_thread::yield();
  closed.get_future().wait();
}

// It goes on reading, but so slowly that its answer would be kept for hours.
TEST_F(HttpServerTest, AReaderThatReadsTooSlowlyIsGivenUp) {
  constexpr std::size_t kSize = 64 * 1024 * 1024;
  // It never waits as long as `write_time` for room in the socket, so that its rate alone decides.
  serve([](const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = std::string(kSize, 'x')}); },
        {.write_time = std::chrono::seconds(2), .least_read_rate = kSize});
  const Client client(server_->port());
  client.send(kGet);
  std::size_t got = client.read_exactly(1).size();  // the server has the connection by then
  while (server_->connections() > 0 && got < kSize) {
    got += client.read_exactly(64 * 1024).size();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(got, kSize);
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, AtTheLimitTheOldestWithoutAHeadMakesRoom) {
  serve(say_yes, {.connections = 2});
  const Client first(server_->port()), second(server_->port());
  first.send("GET");
  second.send(kGet);
  EXPECT_NE(second.read_until("yes"), "");
  const Client third(server_->port());
  EXPECT_EQ(first.read_all(), "");
  third.send(kGet);
  EXPECT_NE(third.read_until("yes"), "");
}

TEST_F(HttpServerTest, DrainingEndsIdleConnectionsAndAnswersNewOnesOnce) {
  std::promise<std::shared_ptr<Exchange>> running;
  std::atomic<int> calls = 0;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    if (++calls == 1) {
      running.set_value(exchange);
    } else {
      say_yes(exchange);
    }
  });
  const Client busy(server_->port()), idle(server_->port());
  busy.send(kGet);
  const std::shared_ptr<Exchange> exchange = running.get_future().get();
  idle.send(kGet);
  EXPECT_NE(idle.read_until("yes"), "");
  server_->begin_drain();
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_FALSE(server_->wait_idle(std::chrono::milliseconds(1)));
  const Client late(server_->port()), silent(server_->port());
  late.send(kGet);
  const std::string answer = late.read_all();
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("yes"));
  exchange->respond({.body = "done"});
  EXPECT_TRUE(busy.read_all().ends_with("done"));
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(60)));  // a connection without a request is not waited for
}

TEST_F(HttpServerTest, HalfAHeadIsNotWaitedFor) {
  serve(say_yes, {.header_time = std::chrono::hours(1)});
  const Client half(server_->port()), whole(server_->port());
  half.send("GET /a HT");
  whole.send(kGet);
  EXPECT_NE(whole.read_until("yes"), "");
  server_->begin_drain();
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(60)));
}

TEST_F(HttpServerTest, TheEndTellsThoseThatStillRun) {
  std::promise<void> handled;
  std::atomic<bool> closed = false;
  std::shared_ptr<Exchange> kept;
  serve([&](const std::shared_ptr<Exchange>& exchange) {
    kept = exchange;
    exchange->on_closed([&] { closed = true; });
    handled.set_value();
  });
  const Client client(server_->port());
  client.send(kGet);
  handled.get_future().wait();
  const auto post = server_->poster();
  bool ran = false;
  std::promise<void> done;
  post([&] {
    ran = true;
    done.set_value();
  });
  done.get_future().wait();
  server_.reset();
  EXPECT_TRUE(closed);
  kept->respond({});
  EXPECT_THROW(post([] {}), Error);
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServerTest, ItMayEndBeforeItBegins) {
  HttpServer::Handler handler;
  {
    const HttpServer never({.port = 0}, handler, *log_);
  }
  serve(say_yes);
  const ServerOptions taken{.port = server_->port()};
  EXPECT_THROW(HttpServer(taken, handler, *log_), Error);
}

// Requests, answers from other threads, leaving clients and the end, all at once.
TEST_F(HttpServerTest, AStormEndsWell) {
  constexpr int kThreads = 4;
  std::mutex mutex;
  std::vector<std::thread> workers;
  serve(
      [&](const std::shared_ptr<Exchange>& exchange) {
        const std::scoped_lock lock(mutex);
        workers.emplace_back([exchange] {
          exchange->begin({});
          for (int i = 0; i < 20; ++i) exchange->write("piece");
          exchange->finish();
        });
      },
      {}, kThreads);
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([this, i] {
      for (int k = 0; k < 10; ++k) {
        Client client(server_->port());
        if (!client.connected()) return;
        client.send(kGet);
        if ((i + k) % 3 != 0) client.read_until("0\r\n\r\n");
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server_.reset();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace quarrel::http
