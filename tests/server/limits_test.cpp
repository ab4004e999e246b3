// Limits of keys and addresses, with a clock that the test moves.
#include "server/limits.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "server/failed_keys.h"
#include "server/http/sender.h"

namespace quarrel {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Caller caller(KeyLimits limits, std::uint64_t key = 1) { return {.name = "a", .key = key, .limits = limits}; }

class LimitsTest : public ::testing::Test {
 protected:
  bool send(const Caller& who) { return !limits.admit(who, Limits::Kind::look).refusal; }

  Clock::time_point now = Clock::now();
  Limits limits{[this] { return now; }};
};

std::string value_of(const http::Headers& headers, std::string_view name) {
  for (const auto& [each, value] : headers) {
    if (each == name) return value;
  }
  return {};
}

TEST_F(LimitsTest, WithoutLimitsThereIsNoTicket) {
  const Limits::Admitted admitted = limits.admit(Caller{}, Limits::Kind::work);
  EXPECT_EQ(admitted.ticket, nullptr);
  EXPECT_FALSE(admitted.refusal);
}

// Ten times as many as it may have, for a minute: those that are admitted are as many as it may have, within a percent.
TEST_F(LimitsTest, AMinutesRequestsAreThoseThatFlowIn) {
  const Caller who = caller({.requests_per_minute = 600});
  while (send(who)) {
  }
  int admitted = 0;
  for (int i = 0; i < 6000; ++i) {
    now += milliseconds(10);
    admitted += send(who) ? 1 : 0;
  }
  EXPECT_NEAR(admitted, 600, 6);
}

TEST_F(LimitsTest, KeysHaveLimitsOfTheirOwn) {
  const Caller one = caller({.requests_per_minute = 2}, 1), other = caller({.requests_per_minute = 2}, 2);
  EXPECT_TRUE(send(one) && send(one));
  EXPECT_FALSE(send(one));
  EXPECT_TRUE(send(other));
}

// Whoever waits as long as it was told finds a place, although others were sent away in the same moment.
TEST_F(LimitsTest, WhoeverComesBackWhenToldIsAdmitted) {
  const Caller who = caller({.requests_per_minute = 60});
  while (send(who)) {
  }
  std::multimap<Clock::time_point, int> returns;
  for (int i = 0; i < 40; ++i) {
    const Limits::Admitted answer = limits.admit(who, Limits::Kind::look);
    ASSERT_TRUE(answer.refusal);
    EXPECT_EQ(answer.refusal->status, 429u);
    EXPECT_GT(answer.refusal->retry_after.count(), 0);
    returns.emplace(now + std::chrono::ceil<seconds>(answer.refusal->retry_after), i);
  }
  int disappointed = 0;
  for (const auto& [at, ignored] : returns) {
    now = at;
    disappointed += send(who) ? 0 : 1;
  }
  EXPECT_EQ(disappointed, 0);
}

TEST_F(LimitsTest, AWaitIsNeverLongerThanAMinuteHoweverManyAsk) {
  const Caller who = caller({.requests_per_minute = 60});
  while (send(who)) {
  }
  for (int i = 0; i < 100'000; ++i) {
    const Limits::Admitted answer = limits.admit(who, Limits::Kind::look);
    ASSERT_TRUE(answer.refusal);
    ASSERT_LE(answer.refusal->retry_after, minutes(1));
  }
}

TEST_F(LimitsTest, PlacesAreGivenBackWithTheirTickets) {
  const Caller who = caller({.concurrency = 2});
  std::deque<Limits::Admitted> held;
  for (int i = 0; i < 2; ++i) held.push_back(limits.admit(who, Limits::Kind::work));
  const Limits::Admitted refused = limits.admit(who, Limits::Kind::work);
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(refused.refusal->status, 429u);
  EXPECT_FALSE(limits.admit(who, Limits::Kind::look).refusal) << "what computes nothing takes no place";
  held.pop_front();
  EXPECT_FALSE(limits.admit(who, Limits::Kind::work).refusal);
}

// An answer that runs was charged when it began: no token of it is lost to a limit.
TEST_F(LimitsTest, APassageIsNeverRefusedAndCostsNothing) {
  const Caller who = caller({.requests_per_minute = 2, .tokens_per_minute = 100, .concurrency = 1});
  const auto left = [&] {
    return value_of(limits.admit(who, Limits::Kind::passage).ticket->headers(), "x-ratelimit-remaining-requests");
  };
  const Limits::Admitted running = limits.admit(who, Limits::Kind::work);
  EXPECT_FALSE(running.ticket->reserve(100));
  EXPECT_EQ(left(), "1");
  EXPECT_EQ(left(), "1");
  EXPECT_TRUE(limits.admit(who, Limits::Kind::look).refusal) << "there are no tokens left";
  EXPECT_FALSE(limits.admit(who, Limits::Kind::passage).refusal);
  EXPECT_TRUE(limits.admit(who, Limits::Kind::work).refusal) << "the answer has its place all the while";
}

TEST_F(LimitsTest, TokensAreReservedAndSettled) {
  const Caller who = caller({.tokens_per_minute = 1000});
  const auto left = [&] {
    return value_of(limits.admit(who, Limits::Kind::look).ticket->headers(), "x-ratelimit-remaining-tokens");
  };
  {
    const Limits::Admitted first = limits.admit(who, Limits::Kind::work);
    EXPECT_FALSE(first.ticket->reserve(900));
    EXPECT_EQ(left(), "100");
    const Limits::Admitted second = limits.admit(who, Limits::Kind::work);
    const auto refusal = second.ticket->reserve(200);
    ASSERT_TRUE(refusal);
    EXPECT_NEAR(static_cast<double>(refusal->retry_after.count()), 6e6, 1e5) << "a hundred of them come in 6 s";
    EXPECT_EQ(left(), "100") << "who was refused holds nothing";
    first.ticket->settle(300);
    EXPECT_EQ(left(), "700");
    first.ticket->settle(300);
    EXPECT_EQ(left(), "700") << "once";
  }
  EXPECT_EQ(left(), "700") << "what was settled stays so when the ticket goes";
  {
    EXPECT_FALSE(limits.admit(who, Limits::Kind::work).ticket->reserve(500));
  }
  EXPECT_EQ(left(), "700") << "what was only reserved comes back";
}

TEST_F(LimitsTest, MoreTokensThanReservedAreOwed) {
  const Caller who = caller({.tokens_per_minute = 600});
  {
    const Limits::Admitted big = limits.admit(who, Limits::Kind::work);
    EXPECT_FALSE(big.ticket->reserve(5000)) << "more than a minute has: from a full bucket it may";
    big.ticket->settle(1200);
  }
  EXPECT_FALSE(send(who));
  now += seconds(59);
  EXPECT_FALSE(send(who));
  now += seconds(2);
  EXPECT_TRUE(send(who));
}

TEST_F(LimitsTest, HeadersSayWhatIsLeft) {
  const Caller who = caller({.requests_per_minute = 60, .tokens_per_minute = 6000});
  const Limits::Admitted admitted = limits.admit(who, Limits::Kind::work);
  EXPECT_FALSE(admitted.ticket->reserve(3000));
  const http::Headers headers = admitted.ticket->headers();
  EXPECT_EQ(value_of(headers, "x-ratelimit-limit-requests"), "60");
  EXPECT_EQ(value_of(headers, "x-ratelimit-remaining-requests"), "59");
  EXPECT_EQ(value_of(headers, "x-ratelimit-reset-requests"), "1s");
  EXPECT_EQ(value_of(headers, "x-ratelimit-limit-tokens"), "6000");
  EXPECT_EQ(value_of(headers, "x-ratelimit-remaining-tokens"), "3000");
  EXPECT_EQ(value_of(headers, "x-ratelimit-reset-tokens"), "30s");
}

TEST_F(LimitsTest, NewLimitsCountWhatWasUsed) {
  Caller who = caller({.requests_per_minute = 10});
  while (send(who)) {
  }
  who.limits.requests_per_minute = 12;
  EXPECT_TRUE(send(who) && send(who));
  EXPECT_FALSE(send(who));
  who.limits = {};
  EXPECT_TRUE(send(who));
}

TEST_F(LimitsTest, TheRecordsCountsSettleATicket) {
  const Caller who = caller({.tokens_per_minute = 1000});
  RequestFacts facts{.ticket = limits.admit(who, Limits::Kind::work).ticket};
  const std::shared_ptr<LimitTicket> ticket = facts.ticket;
  EXPECT_FALSE(ticket->reserve(600));
  RequestRecord record(std::move(facts), {std::make_shared<LimitObserver>()});
  record.update([](RequestFacts& seen) { seen.prompt_tokens = 30; });
  record.add_tokens(20);
  record.end();
  EXPECT_EQ(value_of(ticket->headers(), "x-ratelimit-remaining-tokens"), "950");
}

class FailedKeysTest : public ::testing::Test {
 protected:
  Clock::time_point now = Clock::now();
  FailedKeys failed{[this] { return now; }};
};

TEST_F(FailedKeysTest, AnAddressHasTenTriesAMinute) {
  for (int i = 0; i < FailedKeys::kMostAMinute; ++i) {
    EXPECT_FALSE(failed.wait("127.0.0.1"));
    EXPECT_FALSE(failed.count("127.0.0.1"));
    now += seconds(1);
  }
  const auto wait = failed.wait("127.0.0.1");
  ASSERT_TRUE(wait);
  EXPECT_EQ(duration_cast<seconds>(*wait), seconds(50));
  EXPECT_TRUE(failed.count("127.0.0.1"));
  EXPECT_FALSE(failed.wait("10.0.0.1"));
  now += *wait;
  EXPECT_FALSE(failed.wait("127.0.0.1"));
  EXPECT_FALSE(failed.count("127.0.0.1"));
}

TEST(SenderOf, OneMachineIsOneSender) {
  EXPECT_EQ(http::sender_of("2001:db8:1:2::1"), http::sender_of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
  EXPECT_NE(http::sender_of("2001:db8:1:2::1"), http::sender_of("2001:db8:1:3::1"));
  EXPECT_EQ(http::sender_of("::ffff:10.0.0.1"), http::sender_of("10.0.0.1"));
  EXPECT_NE(http::sender_of("10.0.0.1"), http::sender_of("10.0.0.2"));
  EXPECT_EQ(http::sender_of("fe80::1%eth0"), http::sender_of("fe80::2"));
}

}  // namespace
}  // namespace quarrel
