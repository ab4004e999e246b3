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
