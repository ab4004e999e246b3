// Answers as server-sent events: what a connection gets that takes one up.
#include "server/native_stream.h"

#include <gtest/gtest.h>

#include "server/resumable.h"
#include "server/served_toy.h"

namespace quarrel {
namespace {

class Nobody final : public AnswerReceiver {
 public:
  void accepted(const ResumePoint&) override {}
  bool take(std::span<const AnswerEvent>, const ResumePoint&) override { return false; }
};

class NativeStream : public test::ServedToy {
 protected:
  std::shared_ptr<ResumableAnswer> answer() {
    return service_->sockets().answers().create(std::make_shared<const Caller>(), std::make_shared<Nobody>());
  }
  // A connection that takes it up from its beginning.
  std::shared_ptr<http::Exchange> take_up(const ResumableAnswer& answer) {
    auto made =
        std::make_shared<http::Exchange>(http::Request{.headers = {{"Last-Event-ID", to_text({.id = answer.id()})}},
                                                       .record = service_->new_record({.route = "POST /api/stream"})},
                                         std::size_t{1} << 20, [] {});
    native_stream(*service_, made);
    return made;
  }
};

// All that there is of it is its end, which is no failure.
TEST_F(NativeStream, TakesUpAnAnswerThatWasStoppedBeforeItBegan) {
  const AnswerEvent end{.end = std::make_shared<AnswerEnd>(AnswerEnd{.finish_reason = "cancelled"})};
  for (const bool ends_first : {true, false}) {
    const auto stopped = answer();
    if (ends_first) stopped->take({&end, 1});
    const auto exchange = take_up(*stopped);
    if (!ends_first) stopped->take({&end, 1});
    const http::Exchange::Output output = exchange->take();
    EXPECT_TRUE(output.has_head && output.finished && !output.broken);
    EXPECT_EQ(output.head.status, 200u);
    EXPECT_NE(output.pieces.find(R"("finish_reason":"cancelled")"), std::string::npos) << output.pieces;
  }
}

// A repeated request: what it asks was answered before.
TEST_F(NativeStream, DoesNotReadABodyBesideAPlace) {
  const auto runs = answer();
  const auto exchange =
      std::make_shared<http::Exchange>(http::Request{.headers = {{"Last-Event-ID", to_text({.id = runs->id()})}},
                                                     .body = "{",
                                                     .record = service_->new_record({.route = "POST /api/stream"})},
                                       std::size_t{1} << 20, [] {});
  EXPECT_NO_THROW(native_stream(*service_, exchange));
}

// Neither costs a request where there is an answer; where there is none it does.
TEST_F(NativeStream, ChargesWhatFindsNoAnswer) {
  const auto caller = std::make_shared<const Caller>(Caller{.key = 7, .limits = {.requests_per_minute = 2}});
  const auto runs = service_->sockets().answers().create(caller, std::make_shared<Nobody>());
  const std::string unknown(32, '0');
  const auto status = [&](auto handler, const std::string& id, std::string body = {}) {
    const auto exchange = std::make_shared<http::Exchange>(
        http::Request{.headers = {{"Last-Event-ID", to_text({.id = id})}},
                      .body = std::move(body),
                      .record = service_->new_record({.route = "/api/stream", .caller = caller})},
        std::size_t{1} << 20, [] {});
    try {
      handler(*service_, exchange);
    } catch (const ApiError& error) {
      return error.status;
    }
    return 0u;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status(native_stream, runs->id()), 0u);
  EXPECT_EQ(status(native_stream, unknown), 404u);
  EXPECT_EQ(status(stop_stream, unknown), 404u);
  EXPECT_EQ(status(native_stream, unknown), 429u);
  EXPECT_EQ(status(stop_stream, unknown), 429u);
  EXPECT_EQ(status(stop_stream, runs->id(), "{"), 429u) << "that is no way to stop it";
  EXPECT_EQ(status(native_stream, runs->id()), 0u);
  EXPECT_EQ(status(stop_stream, runs->id()), 0u);
  EXPECT_TRUE(*runs->stopped());
}

TEST_F(NativeStream, TellsWhyAnAnswerDidNotBegin) {
  const auto failed = answer();
  const AnswerEvent end = failure_event({503, "unavailable_error", "queue_full", "full"});
  failed->take({&end, 1});
  const http::Exchange::Output output = take_up(*failed)->take();
  EXPECT_TRUE(output.has_head && output.whole);
  EXPECT_EQ(output.head.status, 503u);
}

}  // namespace
}  // namespace quarrel
