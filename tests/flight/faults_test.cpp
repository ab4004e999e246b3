// What goes wrong, and what a caller is told of it. No test waits for a clock: the server does as it is told.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/descriptor.h"
#include "flight/flight_fixture.h"

namespace quarrel::test {
namespace {

class Faults : public FaultyLongbowTest {
 protected:
  // Appends until something goes wrong: the network takes some batches before it notices.
  std::optional<LongbowError> error_of_stream(VectorStream& stream) {
    return longbow_error([&] {
      for (std::int64_t first = 0; first < 1000; ++first) stream.append(*batch(first, 1));
      stream.close();
    });
  }
};

TEST_F(Faults, RowsShowLate) {
  server_->store().set_visible_after(std::nullopt);
  put(0, 3);
  const Readiness busy = client_->readiness(dataset());
  EXPECT_EQ(busy.state, ReadyState::busy);
  EXPECT_EQ(busy.indexed, 0);
  EXPECT_FALSE(busy.reason.empty());
  // There, and without rows: neither an error nor a schema.
  EXPECT_TRUE(ids().empty());
  EXPECT_FALSE(client_->schema(dataset()));
  EXPECT_TRUE(ids({{"anything", Comparison::equal, "1"}}).empty());
  // Time that is over is told by the last answer.
  EXPECT_EQ(client_->wait_until_ready(dataset(), 3, std::chrono::milliseconds(1)).state, ReadyState::busy);
  server_->store().show_all();
  expect_rows(3);
  EXPECT_EQ(ids().size(), 3u);
}

TEST_F(Faults, AWaitIsStopped) {
  server_->store().set_visible_after(std::nullopt);
  put(0, 3);
  std::stop_source stop;
  stop.request_stop();
  try {
    client_->wait_until_ready(dataset(), 3, kPatience, stop.get_token());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

TEST_F(Faults, RowsThatTheStoreDroppedAreMissed) {
  server_->store().set_most_rows(2);
  EXPECT_EQ(put(0, 5).rows, 5u);
  const Readiness state = client_->wait_until_ready(dataset(), 5, kPatience);
  EXPECT_EQ(state.state, ReadyState::ready);
  EXPECT_EQ(state.indexed, 2);
}

TEST_F(Faults, AStoreThatIsBusyAsAWholeCountsNoRows) {
  put_and_wait(0, 3);
  server_->set_faults({.busy_as_a_whole = 2});
  const Readiness busy = client_->readiness(dataset());
  EXPECT_EQ(busy.state, ReadyState::busy);
  EXPECT_FALSE(busy.indexed);
  EXPECT_FALSE(busy.reason.empty());
  expect_rows(3);  // the second time it is waited for
}

TEST_F(Faults, AStoreThatIsBusyAsAWholeDoesNotLookForADataset) {
  server_->set_faults({.busy_as_a_whole = 2});
  EXPECT_EQ(client_->readiness("new").state, ReadyState::busy);
  EXPECT_EQ(client_->wait_until_ready("new", 0, kPatience).state, ReadyState::missing);
}

TEST_F(Faults, AWarningIsHeardAndTheNextStreamWaits) {
  server_->set_faults({.slow_down = true});
  EXPECT_TRUE(put(0, 1).slow_down);
  EXPECT_TRUE(put(1, 1).slow_down);
  EXPECT_EQ(client_->counters().slow_downs, 2u);
  // One that would wait can be stopped, and nothing of it is sent.
  const std::unique_ptr<LongbowClient> patient =
      std::make_unique<flight::ArrowLongbowClient>(address_, LongbowOptions{.first_pause = std::chrono::hours(1)});
  const auto first = patient->put(dataset(), schema());
  first->append(*batch(2, 1));
  EXPECT_TRUE(first->close().slow_down);
  const std::int64_t streams = server_->streams();
  std::stop_source stop;
  const auto second = patient->put(dataset(), schema(), stop.get_token());
  std::jthread stopper([&] { stop.request_stop(); });
  const auto error = longbow_error([&] { second->append(*batch(3, 1)); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::cancelled);
  EXPECT_EQ(error->after_failure(), AfterFailure::retry);
  EXPECT_EQ(server_->streams(), streams);
}

TEST_F(Faults, AfterAStreamWithoutAWarningNobodyWaits) {
  flight::StreamPause pause(std::chrono::milliseconds(100));
  EXPECT_EQ(pause.length().count(), 0);
  pause.note(true);
  EXPECT_EQ(pause.length().count(), 100);
  pause.note(true);
  EXPECT_EQ(pause.length().count(), 200);
  for (int i = 0; i < 20; ++i) pause.note(true);
  EXPECT_EQ(pause.length().count(), 5000);
  pause.note(false);
  EXPECT_EQ(pause.length().count(), 0);
}

TEST_F(Faults, CallsThatOnlyReadAreRepeated) {
  put_and_wait(0, 3);
  server_->set_faults({.refuse_calls = 3});
  EXPECT_EQ(ids().size(), 3u);
  server_->set_faults({.refuse_calls = 2});
  EXPECT_EQ(client_->info(dataset()).batches, 1);
  server_->set_faults({.refuse_calls = 1});
  EXPECT_EQ(client_->datasets().size(), 1u);
  server_->set_faults({.refuse_calls = 1});
  EXPECT_EQ(client_->readiness(dataset()).state, ReadyState::ready);
  server_->set_faults({.refuse_calls = 1});
  const std::vector<float> query = values(1);
  EXPECT_EQ(client_->search(dataset(), {.vector = query, .k = 1}).at(0).id, 1u);
  EXPECT_EQ(client_->counters().retries, 8u);
  EXPECT_EQ(client_->counters().failures, 0u);
  server_->set_faults({.refuse_calls = 100});
  const auto error = longbow_error([&] { client_->info(dataset()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io);
  EXPECT_EQ(error->after_failure(), AfterFailure::retry);
  EXPECT_EQ(client_->counters().failures, 1u);
}

TEST_F(Faults, NothingThatStoresIsRepeated) {
  server_->set_faults({.refuse_calls = 1});
  const std::int64_t before = server_->calls();
  const auto stream = client_->put(dataset(), schema());
  const auto error = error_of_stream(*stream);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
  EXPECT_EQ(server_->calls(), before + 1);
  EXPECT_THROW(stream->append(*batch(0, 1)), Error);
  EXPECT_THROW(stream->close(), Error);
}

TEST_F(Faults, AServerThatGoesAwayInMidStreamLeavesDoubts) {
  for (const bool kept : {false, true}) {
    server_->set_faults({.break_put_after = 2, .keep_broken = kept});
    const auto stream = client_->put(dataset(), schema());
    const auto error = error_of_stream(*stream);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::io);
    EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
    EXPECT_TRUE(has(error->what(), "DoPut of '" + dataset() + "'")) << error->what();
    server_->set_faults({});
    EXPECT_EQ(ids().size(), kept ? 2u : 0u);
  }
}

TEST_F(Faults, AnIngestThatBreaksTellsWhatWasAcknowledged) {
  server_->set_faults({.break_put_after = 4, .keep_broken = true});
  const auto stream = client_->ingest(dataset(), schema());
  const auto error = error_of_stream(*stream);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
  EXPECT_LE(stream->acknowledged(), 4u);
}

TEST_F(Faults, AFullStoreIsBusy) {
  server_->set_faults({.full = true});
  const auto stream = client_->put(dataset(), schema());
  const auto error = longbow_error([&] {
    stream->append(*batch(0, 1));
    stream->close();
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::busy);
  EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
  server_->set_faults({.rate_limited = 1});
  const auto limited = client_->put(dataset(), schema());
  const auto refused = error_of_stream(*limited);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind(), ErrorKind::busy);
}

// As gRPC itself refuses what is larger than it takes.
TEST_F(Faults, ABatchThatIsTooLargeForTheStoreFindsItBusy) {
  start({.largest_message = 64});
  const auto stream = client_->put(dataset(), schema());
  const auto error = longbow_error([&] {
    stream->append(*batch(0, 100));
    stream->close();
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::busy) << error->what();
  EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
  EXPECT_TRUE(has(error->what(), "larger than max")) << error->what();
}

// Six calls that the store holds at once.
TEST_F(Faults, CallsAtOnceShareFourConnections) {
  put_and_wait(0, 3);
  server_->set_faults({.stall = true});
  const std::int64_t before = server_->calls();
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      if (ids().size() == 3) ++right;
    });
  }
  while (server_->calls() < before + 6) std::this_thread::yield();
  EXPECT_EQ(dynamic_cast<flight::ArrowLongbowClient&>(*client_).data_connections(), 4u);
  server_->set_faults({});
  threads.clear();
  EXPECT_EQ(right, 6);
}

TEST_F(Faults, AStoreThatBlocksForEverMeetsTheTimeLimit) {
  const auto hasty = connect(
      {.call_timeout = std::chrono::milliseconds(50), .batch_timeout = std::chrono::milliseconds(50), .attempts = 1});
  server_->set_faults({.stall = true});
  const auto stream = hasty->put(dataset(), schema());
  const auto error = longbow_error([&] {
    stream->append(*batch(0, 1));
    stream->close();
  });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io);
  EXPECT_EQ(error->after_failure(), AfterFailure::read_back);
  EXPECT_TRUE(has(error->what(), "time limit")) << error->what();
  const auto scan = longbow_error([&] { hasty->scan(dataset(), {}, [](const StoredRow&) { return true; }); });
  ASSERT_TRUE(scan);
  EXPECT_TRUE(has(scan->what(), "time limit")) << scan->what();
  EXPECT_EQ(scan->after_failure(), AfterFailure::retry);
}

TEST_F(Faults, ABlockedCallIsStopped) {
  server_->set_faults({.stall = true});
  for (const bool put : {true, false}) {
    std::stop_source stop;
    const std::int64_t before = server_->calls();
    std::jthread stopper([&] {
      while (server_->calls() == before) std::this_thread::yield();
      stop.request_stop();
    });
    const auto error = longbow_error([&] {
      if (put) {
        const auto stream = client_->put(dataset(), schema(), stop.get_token());
        stream->append(*batch(0, 1));
        stream->close();
      } else {
        client_->scan(dataset(), {}, [](const StoredRow&) { return true; }, stop.get_token());
      }
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::cancelled) << error->what();
  }
}

// Takes connections, and says nothing to anybody.
class SilentSocket {
 public:
  SilentSocket() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listening_.get(), any, size) != 0 || ::listen(listening_.get(), 8) != 0 ||
        ::getsockname(listening_.get(), any, &size) != 0) {
      ADD_FAILURE() << "no socket";
    }
    port_ = ntohs(address.sin_port);
  }
  std::uint16_t port() const noexcept { return port_; }
  int accept() const { return ::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  const Descriptor listening_;
  std::uint16_t port_ = 0;
};

TEST_F(Faults, AStoreThatSaysNothingIsLeftWhenAStopIsRequested) {
  const std::vector<float> query = values(0);
  using Call = std::function<void(LongbowClient&, const std::stop_token&)>;
  const std::vector<std::pair<const char*, Call>> calls{
      {"readiness", [&](auto& client, auto& stop) { client.readiness("d", stop); }},
      {"wait", [&](auto& client, auto& stop) { client.wait_until_ready("d", 1, kPatience, stop); }},
      {"info", [&](auto& client, auto& stop) { client.info("d", stop); }},
      {"datasets", [&](auto& client, auto& stop) { client.datasets({}, stop); }},
      {"schema", [&](auto& client, auto& stop) { client.schema("d", stop); }},
      {"scan", [&](auto& client, auto& stop) { client.scan("d", {}, [](const StoredRow&) { return true; }, stop); }},
      {"search", [&](auto& client, auto& stop) { client.search("d", {.vector = query}, SearchPath::exchange, stop); }},
      {"put", [&](auto& client, auto& stop) { client.put("d", schema(), stop)->append(*batch(0, 1)); }},
  };
  for (const auto& [name, call] : calls) {
    const SilentSocket silent;
    const LongbowAddress address{.host = "127.0.0.1", .data_port = silent.port(), .meta_port = silent.port()};
    const std::unique_ptr<LongbowClient> client =
        std::make_unique<flight::ArrowLongbowClient>(address, LongbowOptions{});
    std::stop_source stop;
    std::optional<Descriptor> connection;
    std::jthread stopper([&] {
      connection.emplace(silent.accept());
      stop.request_stop();
    });
    const auto error = longbow_error([&] { call(*client, stop.get_token()); });
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->kind(), ErrorKind::cancelled) << name << ": " << error->what();
  }
}

TEST_F(Faults, HitsBeyondThoseThatWereAskedForAreNotRead) {
  put_and_wait(0, 5);
  server_->set_faults({.endless_hits = true});
  const std::vector<float> query = values(1);
  for (const SearchPath path : {SearchPath::exchange, SearchPath::ticket}) {
    EXPECT_EQ(client_->search(dataset(), {.vector = query, .k = 3}, path).size(), 3u);
    // Of five rows a batch has five: seven come from two.
    EXPECT_EQ(client_->search(dataset(), {.vector = query, .k = 7}, path).size(), 7u);
  }
}

TEST_F(Faults, RowsThatNeverComeAreNotWaitedForForEver) {
  put_and_wait(0, 3);
  server_->set_faults({.endless_nothing = true});
  const auto error = longbow_error([&] { ids(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->after_failure(), AfterFailure::give_up);
  EXPECT_TRUE(has(error->what(), "without rows")) << error->what();
}

// A few kilobytes could become gigabytes.
TEST_F(Faults, CompressedColumnsAreRefused) {
  put_and_wait(0, 3);
  server_->set_faults({.compressed = true});
  const auto error = longbow_error([&] { ids(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->after_failure(), AfterFailure::give_up);
  EXPECT_TRUE(has(error->what(), "compressed")) << error->what();
}

// That is for the web.
TEST_F(Faults, TheProxyOfTheEnvironmentIsNotAsked) {
  ASSERT_EQ(::setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
  const auto client = connect({.attempts = 1});
  const Readiness state = client->readiness(dataset());
  ::unsetenv("http_proxy");
  EXPECT_EQ(state.state, ReadyState::missing);
}

TEST_F(Faults, AScanThatBreaksMidwayIsNotRepeated) {
  for (int i = 0; i < 3; ++i) put(10 * i, 1);
  server_->set_faults({.break_get_after = 2});
  int seen = 0;
  const std::int64_t before = server_->calls();
  const auto error = longbow_error([&] { client_->scan(dataset(), {}, [&](const StoredRow&) { return ++seen > 0; }); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(server_->calls(), before + 1);
}

TEST_F(Faults, WhatAVisitorThrowsReachesTheCaller) {
  put_and_wait(0, 3);
  EXPECT_THROW(client_->scan(dataset(), {}, [](const StoredRow&) -> bool { throw std::logic_error("mine"); }),
               std::logic_error);
  EXPECT_EQ(ids().size(), 3u);
}

TEST_F(Faults, AServerThatIsNotThereIsNamed) {
  server_.reset();
  const auto quick = connect({.attempts = 2});
  const auto scan = longbow_error([&] { quick->scan(dataset(), {}, [](const StoredRow&) { return true; }); });
  ASSERT_TRUE(scan);
  EXPECT_EQ(scan->kind(), ErrorKind::io);
  EXPECT_TRUE(has(scan->what(), "cannot be reached")) << scan->what();
  EXPECT_EQ(quick->counters().retries, 1u);
  const auto stream = quick->put(dataset(), schema());
  const auto put = error_of_stream(*stream);
  ASSERT_TRUE(put);
  // Nothing of it can have been stored.
  EXPECT_EQ(put->after_failure(), AfterFailure::retry) << put->what();
}

TEST_F(Faults, AStreamThatNobodyClosesEndsWithItsOwner) {
  {
    const auto stream = client_->put(dataset(), schema());
    stream->append(*batch(0, 1));
  }
  {
    const auto stream = client_->ingest(dataset(), schema());
    stream->append(*batch(0, 1));
  }
  SUCCEED();
}

// The verbs that one port refuses go to the other.
TEST_F(Faults, PortsThatAreExchangedAreNoticed) {
  LongbowAddress exchanged = address_;
  std::swap(exchanged.data_port, exchanged.meta_port);
  const auto client = std::make_unique<flight::ArrowLongbowClient>(exchanged, LongbowOptions{.attempts = 1});
  LongbowClient& other = *client;
  const auto info = longbow_error([&] { other.info(dataset()); });
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind(), ErrorKind::unsupported);
  const auto stream = other.put(dataset(), schema());
  const auto put = error_of_stream(*stream);
  ASSERT_TRUE(put);
  EXPECT_EQ(put->kind(), ErrorKind::unsupported) << put->what();
}

// What another client has said of a field is not what this one gets.
TEST_F(Faults, FieldsThatTheStoreRemembersAreAlwaysSent) {
  put_and_wait(0, 3);
  auto other = arrow::flight::FlightClient::Connect(
                   arrow::flight::Location::ForGrpcTcp(address_.host, address_.data_port).ValueOrDie())
                   .ValueOrDie();
  const std::string start = R"({"search":{"dataset":")" + dataset() + R"(","vector":[0,0,0,0],"k":1)";
  EXPECT_FALSE(other->DoGet(arrow::flight::Ticket(start + R"(,"include_vectors":true}})")).ok());
  // Left out, it is still in force …
  EXPECT_FALSE(other->DoGet(arrow::flight::Ticket(start + "}}")).ok());
  const std::vector<float> query = values(2);
  EXPECT_EQ(client_->search(dataset(), {.vector = query, .k = 1}, SearchPath::ticket).at(0).id, 2u);
}

// Remembered by its content, whatever was stored since; the action is not.
TEST_F(Faults, TicketsAreAnsweredFromMemory) {
  put_and_wait(0, 1);
  const std::vector<float> query = values(5);
  const SearchRequest request = {.vector = query, .k = 1};
  EXPECT_EQ(client_->search(dataset(), request, SearchPath::ticket).at(0).id, 0u);
  put(5, 1);
  expect_rows(2);
  EXPECT_EQ(client_->search(dataset(), request, SearchPath::ticket).at(0).id, 0u);
  EXPECT_EQ(client_->search(dataset(), request, SearchPath::action).at(0).id, 5u);
  EXPECT_EQ(client_->search(dataset(), request, SearchPath::exchange).at(0).id, 5u);
}

TEST_F(Faults, RemovedRowsShowAgainWhereThereAreFilters) {
  put_and_wait(0, 2);
  client_->remove(dataset(), "1");
  EXPECT_EQ(ids().size(), 1u);
  EXPECT_EQ(ids({{"id", Comparison::greater_or_equal, "0"}}).size(), 2u);
}

class Tokens : public FaultyLongbowTest {
 protected:
  void SetUp() override {
    if (environment("QUARREL_LONGBOW")) GTEST_SKIP() << "a real store asks for no token";
    start({.token = "right"});
  }
};

TEST_F(Tokens, AreSentWithEveryCall) {
  client_ = connect({.token = "right"});
  put_and_wait(0, 1);
  EXPECT_EQ(ids().size(), 1u);
  EXPECT_EQ(client_->datasets().size(), 1u);
  const auto wrong = connect({.token = "wrong"});
  const auto error = longbow_error([&] { wrong->info(dataset()); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::io) << "nothing is wrong with what was asked";
  EXPECT_EQ(error->after_failure(), AfterFailure::give_up);
  EXPECT_FALSE(has(error->what(), "wrong")) << error->what();
}

TEST(CallWatch, CallsWhatIsDueAndNothingElse) {
  flight::CallWatch watch;
  std::atomic<int> late = 0;
  std::atomic<bool> due = false;
  const flight::CallWatch::Guard far(watch, std::chrono::hours(1), [&] { ++late; });
  {
    const flight::CallWatch::Guard near(watch, std::chrono::milliseconds(1), [&] { due = true; });
    while (!due) std::this_thread::yield();
    while (!near.expired()) std::this_thread::yield();
    // One that expired and stays must not hide those that come after it.
    std::atomic<bool> next = false;
    const flight::CallWatch::Guard after(watch, std::chrono::milliseconds(1), [&] { next = true; });
    while (!next) std::this_thread::yield();
  }
  EXPECT_EQ(late, 0);
  EXPECT_FALSE(far.expired());
}

}  // namespace
}  // namespace quarrel::test
