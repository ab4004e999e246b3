#include "server/request_record.h"

#include <gtest/gtest.h>

#include "server/api_error.h"
#include "server/routes.h"

namespace quarrel {
namespace {

struct Counted final : RequestObserver {
  void begun(const RequestFacts& facts) override {
    ++begins;
    route = facts.route;
  }
  void tokens(const RequestFacts&, const TokenBatch& batch) override {
    tokens_seen += batch.tokens;
    gaps.push_back(batch.gap);
  }
  void ended(const RequestFacts& facts) override {
    ++ends;
    last = facts;
  }
  int begins = 0, ends = 0;
  std::size_t tokens_seen = 0;
  std::vector<double> gaps;
  std::string route;
  RequestFacts last;
};

TEST(RequestRecord, ObserversAreToldOfBeginningTokensAndEndOnce) {
  const auto counted = std::make_shared<Counted>();
  RequestRecord record({.id = "r1", .route = "POST /v1/completions"}, {counted});
  EXPECT_EQ(counted->begins, 1);
  EXPECT_EQ(counted->route, "POST /v1/completions");
  record.update([](RequestFacts& facts) { facts.model = "toy"; });
  record.add_tokens(1);
  record.add_tokens(2);
  record.update([](RequestFacts& facts) { facts.status = 200; });
  record.end();
  record.end();
  EXPECT_EQ(counted->ends, 1);
  EXPECT_EQ(counted->tokens_seen, 3u);
  ASSERT_EQ(counted->gaps.size(), 2u);
  EXPECT_EQ(counted->gaps[0], 0.0);
  EXPECT_EQ(counted->last.model, "toy");
  EXPECT_EQ(counted->last.status, 200u);
  EXPECT_EQ(counted->last.generated_tokens, 3u);
  EXPECT_TRUE(counted->last.first_token && counted->last.ended);
}

TEST(RequestRecord, OneThatNobodyHoldsHasEnded) {
  const auto counted = std::make_shared<Counted>();
  std::make_shared<RequestRecord>(RequestFacts{.id = "r2"}, RequestObservers{counted}).reset();
  EXPECT_EQ(counted->ends, 1);
  EXPECT_EQ(counted->last.id, "r2");
}

TEST(RequestRecord, AClientThatLeavesIsNoFailure) {
  RequestFacts waiting{.model = "toy"};
  note_departure(waiting);
  EXPECT_EQ(waiting.status, 499u);
  EXPECT_EQ(waiting.finish_reason, "cancelled");
  EXPECT_EQ(waiting.error, "");
  RequestFacts streaming{.model = "toy", .status = 200};
  note_departure(streaming);
  EXPECT_EQ(streaming.status, 200u) << "its head was out";
  EXPECT_EQ(streaming.finish_reason, "cancelled");
  RequestFacts answered{.model = "toy", .status = 200, .finish_reason = "stop"};
  note_departure(answered);
  EXPECT_EQ(answered.finish_reason, "stop") << "only its end was not read";
  RequestFacts listing;
  note_departure(listing);
  EXPECT_EQ(listing.finish_reason, "") << "nothing was generated";
}

TEST(RequestRecord, AnErrorHasItsCodeAndWithoutAHeadItsStatus) {
  const ApiError error(400, "invalid_request_error", "context_length_exceeded", "too long");
  RequestFacts message{.status = 200};
  note_error(message, error);
  EXPECT_EQ(message.status, 400u);
  EXPECT_EQ(message.error, "invalid_request_error");
  EXPECT_EQ(message.code, "context_length_exceeded");
  RequestFacts begun{.row = routes().data(), .status = 200};
  note_error(begun, error);
  EXPECT_EQ(begun.status, 200u) << "that is what its client was sent";
  // Where nothing could be sent it was our fault.
  RequestFacts broken{.row = routes().data(), .model = "toy"};
  note_error(broken, {500, "server_error", "model_failed", "it broke"});
  note_departure(broken);
  EXPECT_EQ(broken.status, 500u);
  EXPECT_EQ(broken.finish_reason, "");
}

TEST(Caller, MayUseWhatItsListHasOrAll) {
  EXPECT_TRUE(Caller{}.may_use("any"));
  const Caller bound{.models = {"one", "two"}};
  EXPECT_TRUE(bound.may_use("two"));
  EXPECT_FALSE(bound.may_use("three"));
}

}  // namespace
}  // namespace quarrel
