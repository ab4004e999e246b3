// One answer between a handler and a connection: order, slow readers, ends, threads.
#include "server/http/exchange.h"

#include <gtest/gtest.h>

#include <atomic>

namespace quarrel::http {
namespace {

struct Made {
  explicit Made(std::size_t most = 1000)
      : exchange(std::make_shared<Exchange>(Request{.id = "a"}, most, [this] { ++wakes; })) {
    exchange->on_closed([this] { ++closed; });
  }
  std::atomic<int> wakes = 0, closed = 0;
  std::shared_ptr<Exchange> exchange;
};

TEST(ExchangeTest, TheHeadIsShownBeforeItGoesOut) {
  for (const bool whole : {true, false}) {
    Made made;
    unsigned seen = 0;
    made.exchange->on_head([&](Response& head) {
      seen = head.status;
      head.headers.emplace_back("x-more", "1");
    });
    if (whole) made.exchange->respond({.status = 404});
    if (!whole) made.exchange->begin({.status = 404});
    made.exchange->respond({.status = 500});
    EXPECT_EQ(seen, 404u);
    EXPECT_EQ(made.exchange->take().head.headers, (Headers{{"x-more", "1"}}));
  }
}

TEST(ExchangeTest, AWholeAnswerIsTakenOnce) {
  Made made;
  EXPECT_FALSE(made.exchange->begun());
  made.exchange->respond({.status = 404, .body = "x"});
  made.exchange->respond({.status = 500, .body = "late"});
  made.exchange->begin({});
  EXPECT_FALSE(made.exchange->write("late"));
  made.exchange->finish();
  made.exchange->abandon();
  EXPECT_TRUE(made.exchange->begun());
  EXPECT_EQ(made.wakes, 1);
  const Exchange::Output output = made.exchange->take();
  EXPECT_TRUE(output.has_head && output.whole && output.finished && !output.broken);
  EXPECT_EQ(output.head.status, 404u);
  EXPECT_EQ(output.head.body, "x");
  EXPECT_EQ(output.pieces, "");
  EXPECT_FALSE(made.exchange->take().has_head);
  made.exchange->close();  // the answer is given: nobody is told
  EXPECT_EQ(made.closed, 0);
}

TEST(ExchangeTest, PiecesGatherUntilTheyAreTaken) {
  Made made;
  EXPECT_FALSE(made.exchange->write("before the head"));
  made.exchange->begin({.content_type = "text/plain"});
  EXPECT_TRUE(made.exchange->write("a"));
  EXPECT_TRUE(made.exchange->write("b"));
  EXPECT_EQ(made.wakes, 1);
  Exchange::Output output = made.exchange->take();
  EXPECT_TRUE(output.has_head && !output.whole && !output.finished);
  EXPECT_EQ(output.pieces, "ab");
  made.exchange->respond({.status = 500});  // too late for a whole one
  EXPECT_EQ(made.wakes, 1);
  EXPECT_TRUE(made.exchange->write("c"));
  made.exchange->finish();
  EXPECT_EQ(made.wakes, 2);
  output = made.exchange->take();
  EXPECT_TRUE(!output.has_head && output.finished);
  EXPECT_EQ(output.pieces, "c");
}

TEST(ExchangeTest, ASlowReaderIsGivenUp) {
  Made made(10);
  made.exchange->begin({});
  EXPECT_TRUE(made.exchange->write("0123456789"));
  EXPECT_EQ(made.closed, 0);
  EXPECT_FALSE(made.exchange->write("x"));
  EXPECT_EQ(made.closed, 1);
  EXPECT_EQ(made.wakes, 2);  // the connection is to end, whatever it waits for
  EXPECT_FALSE(made.exchange->write("x"));
  EXPECT_TRUE(made.exchange->take().broken);
  made.exchange->close();
  EXPECT_EQ(made.closed, 1);
}

TEST(ExchangeTest, OnePieceMayBeLargerThanTheBuffer) {
  Made made(10);
  made.exchange->begin({});
  EXPECT_TRUE(made.exchange->write("a line that is longer than ten bytes"));
  EXPECT_EQ(made.closed, 0);
  EXPECT_TRUE(made.exchange->write("0123456789")) << "it takes no room from what follows";
  EXPECT_FALSE(made.exchange->write("x"));
}

TEST(ExchangeTest, ATakenPieceMakesRoom) {
  Made made(10);
  made.exchange->begin({});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(made.exchange->write("0123456789"));
    EXPECT_EQ(made.exchange->take().pieces.size(), 10u);
  }
}

TEST(ExchangeTest, AClosedOneTellsOnceAndTakesNothing) {
  Made made;
  made.exchange->begin({});
  made.exchange->close();
  made.exchange->close();
  EXPECT_EQ(made.closed, 1);
  EXPECT_FALSE(made.exchange->write("x"));
  made.exchange->finish();
  EXPECT_FALSE(made.exchange->take().finished);
  bool told = false;
  made.exchange->on_closed([&] { told = true; });
  EXPECT_TRUE(told);
}

TEST(ExchangeTest, AnAbandonedAnswerIsBroken) {
  Made streaming;
  streaming.exchange->begin({});
  streaming.exchange->write("half");
  streaming.exchange->abandon();
  EXPECT_EQ(streaming.closed, 1);
  EXPECT_EQ(streaming.wakes, 2);
  EXPECT_TRUE(streaming.exchange->take().broken);
  Made waiting;
  waiting.exchange->abandon();
  EXPECT_TRUE(waiting.exchange->take().broken);
}

// For want of memory: whoever tries again must not find it done.
TEST(ExchangeTest, AConnectionThatCouldNotBeWokenIsWokenLater) {
  for (const bool whole : {true, false}) {
    int calls = 0;
    Exchange exchange(Request{}, 1000, [&] {
      if (++calls == 1) throw std::bad_alloc();
    });
    if (whole) {
      EXPECT_THROW(exchange.respond({}), std::bad_alloc);
      exchange.abandon();
    } else {
      EXPECT_THROW(exchange.begin({}), std::bad_alloc);
      EXPECT_TRUE(exchange.write("piece"));
    }
    EXPECT_EQ(calls, 2);
    EXPECT_TRUE(exchange.take().has_head);
  }
  int calls = 0;
  WebSocket socket(std::make_shared<Request>(), 1000, [&] {
    if (++calls == 1) throw std::bad_alloc();
  });
  EXPECT_THROW(socket.send("first"), std::bad_alloc);
  EXPECT_TRUE(socket.send("second"));
  EXPECT_EQ(calls, 2);
}

TEST(ExchangeTest, AConnectionThatIsToEndHearsOfItLater) {
  for (const bool outgrown : {true, false}) {
    int calls = 0;
    bool fails = false;
    Exchange exchange(Request{}, 10, [&] {
      ++calls;
      if (std::exchange(fails, false)) throw std::bad_alloc();
    });
    exchange.begin({});
    EXPECT_TRUE(exchange.write("0123456789"));
    fails = true;
    const auto end = [&] { outgrown ? static_cast<void>(exchange.write("x")) : exchange.abandon(); };
    EXPECT_THROW(end(), std::bad_alloc);
    EXPECT_EQ(calls, 2);
    end();
    EXPECT_EQ(calls, 3);
    end();
    EXPECT_EQ(calls, 3) << "it knows";
    EXPECT_TRUE(exchange.take().broken);
  }
}

TEST(ExchangeTest, WhoFailsToHearOfTheEndKeepsItFromNobody) {
  int wakes = 0, heard = 0;
  Exchange exchange(Request{}, 1000, [&] { ++wakes; });
  exchange.on_closed([] { throw std::bad_alloc(); });
  exchange.on_closed([&] { ++heard; });
  EXPECT_THROW(exchange.abandon(), std::bad_alloc);
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(wakes, 1);
}

TEST(ExchangeTest, KeptWorkLivesAsLongAsItDoes) {
  Made made;
  auto work = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = work;
  made.exchange->keep(std::move(work));
  made.exchange->close();
  EXPECT_FALSE(weak.expired());
  made.exchange.reset();
  EXPECT_TRUE(weak.expired());
}

// Writers on several threads, a reader that takes, and an end in the middle of it.
TEST(ExchangeTest, ThreadsMayMeet) {
  for (int round = 0; round < 50; ++round) {
    Made made(1 << 20);
    made.exchange->begin({});
    std::vector<std::thread> writers;
    for (int i = 0; i < 3; ++i) {
      writers.emplace_back([&] {
        for (int k = 0; k < 200; ++k) made.exchange->write("0123456789");
      });
    }
    std::size_t taken = 0;
    for (int k = 0; k < 50; ++k) taken += made.exchange->take().pieces.size();
    const bool broken_off = round % 2 == 0;
    if (broken_off) made.exchange->close();
    for (std::thread& writer : writers) writer.join();
    if (!broken_off) made.exchange->finish();
    const Exchange::Output rest = made.exchange->take();
    EXPECT_EQ(rest.finished, !broken_off);
    EXPECT_EQ(made.closed, broken_off ? 1 : 0);
    if (broken_off) continue;
    EXPECT_EQ(taken + rest.pieces.size(), 6000u);
  }
}

}  // namespace
}  // namespace quarrel::http
