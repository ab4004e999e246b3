#include "server/request_record.h"

#include <gtest/gtest.h>

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

TEST(Caller, MayUseWhatItsListHasOrAll) {
  EXPECT_TRUE(Caller{}.may_use("any"));
  const Caller bound{.models = {"one", "two"}};
  EXPECT_TRUE(bound.may_use("two"));
  EXPECT_FALSE(bound.may_use("three"));
}

}  // namespace
}  // namespace quarrel
