// Answers that outlive their connection: every event once and in order wherever the connection is cut, nobody else's
// answer, and bounds on what is kept.
#include "server/resumable.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace quarrel {
namespace {

using namespace std::chrono_literals;

// A client that reads as many events as it is given before its connection is cut.
class Client final : public AnswerReceiver {
 public:
  explicit Client(std::size_t most = 1'000'000) : most_(most) {}
  void accepted(const ResumePoint&) override { ++accepted_times; }
  void reading(std::size_t read, std::size_t) override { read_tokens = read; }
  bool take(std::span<const AnswerEvent> events, const ResumePoint& before) override {
    std::uint64_t number = before.event;
    for (const AnswerEvent& event : events) {
      if (most_ == 0) return false;
      --most_;
      numbers.push_back(++number);
      text += event.text;
      complete = complete || event.end != nullptr;
    }
    return true;
  }
  void replaced() override { ++replaced_times; }

  std::vector<std::uint64_t> numbers;
  std::string text;
  bool complete = false;
  std::size_t read_tokens = 0;
  int accepted_times = 0, replaced_times = 0;

 private:
  std::size_t most_;
};

AnswerEvent piece(std::string text) { return {.text = std::move(text), .token = 1}; }
AnswerEvent last() { return {.end = std::make_shared<AnswerEnd>(AnswerEnd{.finish_reason = "stop"})}; }

std::shared_ptr<const Caller> key_holder(std::uint64_t key) {
  return std::make_shared<const Caller>(Caller{.key = key});
}

void put(ResumableAnswer& answer, AnswerEvent event) { answer.take(std::span(&event, 1)); }

struct Fixture : testing::Test {
  Clock::time_point now = Clock::time_point() + 1h;
  ResumeOptions options() {
    ResumeOptions made;
    made.now = [this] { return now; };
    return made;
  }
  static unsigned status_of(ResumableAnswers& answers, const ResumePoint& point, std::uint64_t caller) {
    try {
      answers.attach(point, caller, std::make_shared<Client>());
    } catch (const ApiError& error) {
      return error.status;
    }
    return 200;
  }
};

using Resumable = Fixture;

TEST_F(Resumable, EveryEventComesOnceWhereverTheConnectionIsCut) {
  constexpr int kEvents = 40;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    ResumableAnswers answers(options());
    auto client = std::make_shared<Client>(random() % 8);
    const auto answer = answers.create(key_holder(1), client);
    answer->accepted();
    std::string wanted, text;
    std::vector<std::uint64_t> numbers;
    bool complete = false;
    const auto gather = [&] {
      text += client->text;
      numbers.insert(numbers.end(), client->numbers.begin(), client->numbers.end());
      complete = complete || client->complete;
    };
    const auto reconnect = [&] {
      gather();
      client = std::make_shared<Client>(random() % 8);
      answers.attach({.id = answer->id(), .event = numbers.empty() ? 0 : numbers.back()}, 1, client);
    };
    for (int i = 0; i < kEvents; ++i) {
      const std::string word = std::to_string(i) + " ";
      wanted += word;
      put(*answer, piece(word));
      if (random() % 4 == 0) reconnect();
    }
    put(*answer, last());
    while (!complete) reconnect();
    EXPECT_EQ(text, wanted);
    ASSERT_EQ(numbers.size(), static_cast<std::size_t>(kEvents) + 1);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i + 1);
  }
}

TEST_F(Resumable, TwoThreadsLoseNothing) {
  ResumableAnswers answers(options());
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>(3));
  std::jthread writer([&] {
    for (int i = 0; i < 2000; ++i) put(*answer, piece("x"));
    put(*answer, last());
  });
  std::uint64_t have = 0;
  for (bool complete = false; !complete;) {
    const auto client = std::make_shared<Client>(17);
    answers.attach({.id = answer->id(), .event = have}, 1, client);
    std::this_thread::yield();
    answer->detach(client.get());  // after this nobody calls it
    for (const std::uint64_t number : client->numbers) ASSERT_EQ(number, ++have);
    complete = client->complete;
  }
  EXPECT_EQ(have, 2001u);
  writer.join();
}

TEST_F(Resumable, AnotherCallerLearnsNothing) {
  ResumableAnswers answers(options());
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>());
  put(*answer, piece("a"));
  std::string messages[3];
  int i = 0;
  for (const auto& [point, caller] : {std::pair{ResumePoint{.id = answer->id(), .event = 0}, 2},
                                      std::pair{ResumePoint{.id = std::string(32, '0'), .event = 0}, 1},
                                      std::pair{ResumePoint{.id = answer->id(), .event = 5}, 1}}) {
    try {
      answers.attach(point, static_cast<std::uint64_t>(caller), std::make_shared<Client>());
      ADD_FAILURE();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 404u);
      messages[i++] = error.what();
    }
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  EXPECT_EQ(status_of(answers, {.id = answer->id(), .event = 1}, 1), 200u);
}

TEST_F(Resumable, WhoeverHasItsIdAndIsItsCallerEndsIt) {
  ResumableAnswers answers(options());
  const auto client = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), client);
  int cancelled = 0;
  answer->set_cancel([&] { ++cancelled; });
  EXPECT_THROW(answers.stop(answer->id(), 2), ApiError);
  EXPECT_THROW(answers.stop("0123456789abcdef0123456789abcdef", 1), ApiError);
  EXPECT_FALSE(*answer->stopped());
  answers.stop(answer->id(), 1);
  answers.stop(answer->id(), 1);
  EXPECT_TRUE(*answer->stopped());
  EXPECT_EQ(cancelled, 1);
}

TEST_F(Resumable, HowMuchIsReadIsToldToWhoeverListens) {
  ResumableAnswers answers(options());
  const auto first = std::make_shared<Client>();
  const auto second = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), first);
  answer->reading(10, 50);
  answers.attach({.id = answer->id(), .event = 0}, 1, second);
  answer->reading(20, 50);
  answer->detach(second.get());
  answer->reading(30, 50);
  EXPECT_EQ(first->read_tokens, 10U);
  EXPECT_EQ(second->read_tokens, 20U);
}

TEST_F(Resumable, ASecondConnectionTakesItFromTheFirst) {
  ResumableAnswers answers(options());
  const auto first = std::make_shared<Client>();
  const auto second = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), first);
  answer->accepted();
  put(*answer, piece("a"));
  answers.attach({.id = answer->id(), .event = 1}, 1, second);
  EXPECT_EQ(second->accepted_times, 1);
  put(*answer, piece("b"));
  answer->detach(first.get());  // it is late, and nobody's any more
  put(*answer, piece("c"));
  EXPECT_EQ(first->text, "a");
  EXPECT_EQ(first->replaced_times, 1);
  EXPECT_EQ(second->text, "bc");
}

// However fast the answer goes on meanwhile: each token would bring another part, and no link takes that.
TEST_F(Resumable, WhoIsFarBehindCatchesUpInParts) {
  ResumeOptions parts = options();
  parts.bytes_at_once = 10 * 258;  // of events with a letter each
  ResumableAnswers answers(parts);
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>(0));
  for (int i = 0; i < 25; ++i) put(*answer, piece("x"));
  const auto client = std::make_shared<Client>();
  answers.attach({.id = answer->id()}, 1, client);
  EXPECT_EQ(client->numbers.size(), 10u);
  for (int i = 0; i < 3; ++i) put(*answer, piece("x"));
  EXPECT_EQ(client->numbers.size(), 10u);
  answers.look();
  EXPECT_EQ(client->numbers.size(), 20u);
  put(*answer, piece("x"));
  answers.look();
  EXPECT_EQ(client->numbers.size(), 29u) << "it has all";
  put(*answer, piece("x"));
  EXPECT_EQ(client->numbers.size(), 30u);
  for (int i = 0; i < 12; ++i) put(*answer, i < 11 ? piece("x") : last());
  EXPECT_TRUE(client->complete);
}

// Its sources alone are more than is kept, and it is still behind.
TEST_F(Resumable, WhoIsTooFarBehindIsTold) {
  ResumeOptions small = options();
  small.bytes = 100 * sizeof(AnswerEvent);
  small.bytes_at_once = 1;
  ResumableAnswers answers(small);
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>(0));
  for (int i = 0; i < 25; ++i) put(*answer, piece("x"));
  const auto client = std::make_shared<Client>();
  answers.attach({.id = answer->id()}, 1, client);
  EXPECT_EQ(client->numbers.size(), 1u);
  put(*answer, {.end = std::make_shared<AnswerEnd>(AnswerEnd{.sources = std::string(small.bytes, 's')})});
  answers.look();
  EXPECT_TRUE(client->complete);
  EXPECT_EQ(client->numbers.size(), 2u) << "one piece, and that there will be no more";
}

TEST_F(Resumable, OneThatNeverBeganIsOver) {
  ResumableAnswers answers(options());
  const auto client = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), client);
  answer->never_began(client.get(), std::make_exception_ptr(std::bad_alloc()));
  EXPECT_TRUE(client->numbers.empty()) << "its connection hears of it in another way";
  const auto second = std::make_shared<Client>();
  answers.attach({.id = answer->id()}, 1, second);
  EXPECT_TRUE(second->complete);
  now += 1min;
  answers.look();
  EXPECT_EQ(answers.size(), 0u);
}

TEST_F(Resumable, AfterItsTimeItIsEndedAndForgotten) {
  ResumableAnswers answers(options());
  const auto client = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), client);
  int cancelled = 0;
  answer->set_cancel([&] { ++cancelled; });
  now += 10min;
  answers.look();
  EXPECT_EQ(answers.size(), 1u) << "somebody reads it";
  answer->detach(client.get());
  now += 59s;
  answers.look();
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(cancelled, 0);
  now += 1s;
  answers.look();
  EXPECT_EQ(answers.size(), 0u);
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(status_of(answers, {.id = answer->id()}, 1), 404u);
}

TEST_F(Resumable, WhatHasEndedIsKeptForThoseWhoMissedTheEnd) {
  ResumableAnswers answers(options());
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>());
  put(*answer, piece("a"));
  put(*answer, last());
  const auto client = std::make_shared<Client>();
  EXPECT_EQ(answers.attach({.id = answer->id(), .event = 1}, 1, client).left, Remainder::some);
  EXPECT_TRUE(client->complete);
  const auto late = std::make_shared<Client>();
  EXPECT_EQ(answers.attach({.id = answer->id(), .event = 2}, 1, late).left, Remainder::none);
  EXPECT_TRUE(late->numbers.empty());
  now += 60s;
  answers.look();
  EXPECT_EQ(answers.size(), 0u);
}

TEST_F(Resumable, WhatHasEndedIsForgottenWithItsKey) {
  ResumableAnswers answers(options());
  const auto kept = answers.create(key_holder(1), std::make_shared<Client>(0));
  const auto revoked = answers.create(key_holder(2), std::make_shared<Client>(0));
  const auto running = answers.create(key_holder(2), std::make_shared<Client>(0));
  for (const auto& answer : {kept, revoked}) put(*answer, last());
  put(*running, piece("a"));
  const auto forget = [&] { answers.forget([](const Caller& caller) { return caller.key == 1; }); };
  forget();
  EXPECT_EQ(status_of(answers, {.id = kept->id()}, 1), 200u);
  EXPECT_EQ(status_of(answers, {.id = revoked->id()}, 2), 404u);
  EXPECT_EQ(answers.size(), 2u) << "one that runs has an end to write down";
  put(*running, last());
  forget();
  EXPECT_EQ(answers.size(), 1u);
}

TEST_F(Resumable, AnIdThatNobodyKnowsEndsWithItsConnection) {
  ResumableAnswers answers(options());
  const auto client = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), client);
  int cancelled = 0;
  answer->detach(client.get(), false);
  answer->set_cancel([&] { ++cancelled; });  // late, as it may be
  EXPECT_EQ(cancelled, 1);
}

// Work that is cancelled still reports its end, and is held until then.
TEST_F(Resumable, WorkIsHeldUntilItsEnd) {
  ResumableAnswers answers(options());
  const auto client = std::make_shared<Client>();
  const auto answer = answers.create(key_holder(1), client);
  auto work = std::make_shared<int>(0);
  const std::weak_ptr<int> held = work;
  answer->set_cancel([work] { ++*work; });
  work.reset();
  answer->cancel();
  answer->cancel();
  ASSERT_FALSE(held.expired());
  EXPECT_EQ(*held.lock(), 1);
  put(*answer, last());
  EXPECT_TRUE(client->complete);
  EXPECT_TRUE(held.expired());
}

TEST_F(Resumable, WhatIsKeptIsBounded) {
  ResumeOptions small = options();
  small.bytes = 20 * sizeof(AnswerEvent);
  ResumableAnswers answers(small);
  const auto client = std::make_shared<Client>();
  const auto read = answers.create(key_holder(1), client);
  int cancelled = 0;
  read->set_cancel([&] { ++cancelled; });
  for (int i = 0; i < 1000; ++i) put(*read, piece("x"));
  EXPECT_EQ(cancelled, 0) << "its reader has them all";
  EXPECT_LE(read->bytes(), small.bytes);
  EXPECT_EQ(status_of(answers, {.id = read->id(), .event = 1}, 1), 404u);
  EXPECT_EQ(status_of(answers, {.id = read->id(), .event = 995}, 1), 200u);

  const auto alone = answers.create(key_holder(1), std::make_shared<Client>(0));
  alone->set_cancel([&] { ++cancelled; });
  for (int i = 0; i < 1000; ++i) put(*alone, piece("x"));
  EXPECT_EQ(cancelled, 1) << "the first of them can never be sent";
}

TEST_F(Resumable, TheirNumberIsBounded) {
  ResumeOptions few = options();
  few.answers = 4;
  few.answers_of_caller = 3;
  ResumableAnswers answers(few);
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<std::shared_ptr<ResumableAnswer>> made;
  const auto create = [&](std::uint64_t caller) {
    clients.push_back(std::make_shared<Client>());
    made.push_back(answers.create(key_holder(caller), clients.back()));
  };
  const auto status = [&](std::uint64_t caller) {
    try {
      create(caller);
    } catch (const ApiError& error) {
      return error.status;
    }
    return 200u;
  };
  for (int i = 0; i < 3; ++i) create(1);
  EXPECT_EQ(status(1), 429u);
  create(2);
  EXPECT_EQ(status(2), 503u);
  int cancelled = 0;
  made[1]->set_cancel([&] { ++cancelled; });
  made[1]->detach(clients[1].get());
  EXPECT_EQ(status(2), 200u) << "one that nobody reads makes room";
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(answers.size(), 4u);
}

TEST_F(Resumable, ItsPlaceIsReadAsItIsWritten) {
  const std::string id = new_resume_id();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_NE(id, new_resume_id());
  const auto point = read_resume_point(to_text({.id = id, .event = 18446744073709551615u}));
  ASSERT_TRUE(point);
  EXPECT_EQ(point->id, id);
  EXPECT_EQ(point->event, 18446744073709551615u);
  for (const std::string& wrong : std::vector<std::string>{
           std::string(), id, id + ":", id + ":-1", id + ":+1", id + ":1 ", id + ": 1", id + ":18446744073709551616",
           std::string(":1"), id.substr(1) + ":1", id + "0:1", "x" + id.substr(1) + ":1"}) {
    EXPECT_FALSE(read_resume_point(wrong)) << wrong;
  }
  ResumableAnswers answers(options());
  const auto answer = answers.create(key_holder(1), std::make_shared<Client>());
  EXPECT_EQ(status_of(answers, {.id = answer->id(), .event = 18446744073709551615u}, 1), 404u);
}

}  // namespace
}  // namespace quarrel
