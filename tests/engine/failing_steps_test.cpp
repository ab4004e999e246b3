// Steps that come to nothing: tried again smaller where that may help, and otherwise the end of those they were for,
// each of whom hears why. Nobody else's answer changes by a bit.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "engine/served.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

struct Fault {
  std::int32_t steps_in_flight = 1;
  bool recurrent = false;
};

class FailingSteps : public testing::TestWithParam<Fault> {
 protected:
  // A step is numbered by its ticket, from 1.
  using Fails = std::function<void(Ticket)>;

  Served serve(Fails fails) {
    fails_ = std::move(fails);
    return {model(),
            256,
            64,
            {.sequences = 4,
             .steps_in_flight = GetParam().steps_in_flight,
             .late = true,
             .lateness = {.before_step = [this](Ticket ticket) { fails_(ticket); }, .when_observed = observing_}}};
  }
  std::filesystem::path model() const {
    return write_toy(GetParam().recurrent ? "granitehybrid" : "llama", folder_.path(), {.context = 256});
  }
  static std::vector<EngineRequest> requests(const Served& served) {
    std::vector<EngineRequest> made;
    for (std::uint32_t i = 0; i < 4; ++i) {
      made.push_back(text_request(random_tokens(10 + 9 * i, served.vocabulary(), i), 20));
      made.back().sampling.temperature = 0.9f;
      made.back().sampling.repeat_penalty = 1.2f;
      made.back().sampling.mirostat = i == 2;
    }
    return made;
  }

  TempDir folder_;
  Fails fails_ = [](Ticket) {};
  std::function<void()> observing_ = {};
};
INSTANTIATE_TEST_SUITE_P(All, FailingSteps,
                         testing::Values(Fault{}, Fault{.steps_in_flight = 2}, Fault{.recurrent = true},
                                         Fault{.steps_in_flight = 2, .recurrent = true}),
                         [](const auto& fault) {
                           return std::string(fault.param.recurrent ? "Recurrent" : "Dense") +
                                  (fault.param.steps_in_flight == 2 ? "TwoInFlight" : "OneByOne");
                         });

[[noreturn]] void run_out() { fail(ErrorKind::out_of_memory, "the device has no memory left"); }

TEST_P(FailingSteps, OneForWantOfMemoryIsTriedAgain) {
  Served sound(model(), 256, 64, {.sequences = 4});
  const std::vector<EngineRequest> asked = requests(sound);
  const std::vector<Answer> expected = ask_together(sound.engine(), asked);
  // Not too often: a recurrent text begins anew after each.
  const std::set<Ticket> failing = {1, 3, 9, 10, 21, 40};
  Served served = serve([&](Ticket ticket) {
    if (failing.contains(ticket)) run_out();
  });
  EXPECT_EQ(ask_together(served.engine(), asked), expected);
  EXPECT_GT(served.engine().counters().failed_steps, 2u);
}

TEST_P(FailingSteps, FourInARowEndTheirRequests) {
  std::atomic<bool> broken{true};
  std::atomic<int> failures{0};
  Served served = serve([&](Ticket) {
    if (!broken) return;
    ++failures;
    run_out();
  });
  const std::vector<EngineRequest> asked = requests(served);
  for (const Answer& answer : ask_together(served.engine(), asked)) {
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_EQ(answer.error, "the device has no memory left");
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_EQ(served.engine().counters().failed_steps % 4, 0u);
  EXPECT_GE(failures, 4);
  broken = false;
  for (const Answer& answer : ask_together(served.engine(), asked)) EXPECT_EQ(answer.tokens.size(), 20u);
}

// What a smaller step would not help is not tried again. Everybody in the step hears of it, every branch.
TEST_P(FailingSteps, AnyOtherFailureEndsThemAtOnce) {
  std::atomic<Ticket> last{0};
  std::atomic<Ticket> fails_at{0};
  Served served = serve([&](Ticket ticket) {
    last = ticket;
    if (ticket == fails_at) fail(ErrorKind::internal, "a wire is loose");
  });
  EngineRequest several = text_request(random_tokens(12, served.vocabulary(), 1), 40, 3);
  several.sampling.temperature = 1.0f;
  const EngineRequest single = text_request(random_tokens(12, served.vocabulary(), 2), 40);
  served.engine().pause();
  const Engine::Submission first = served.engine().submit(several);
  const Engine::Submission second = served.engine().submit(single);
  fails_at = last + 12;  // all of them are at their answers then
  served.engine().resume();
  std::vector<Answer> answers = read_answers(*first.stream, 3);
  answers.push_back(read_answers(*second.stream).front());
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_EQ(answer.error, "a wire is loose");
    EXPECT_GT(answer.tokens.size(), 0u);
    EXPECT_LT(answer.tokens.size(), 40u);
  }
  EXPECT_EQ(ask(served.engine(), single).tokens.size(), 40u);
  const SchedulerCounters counters = served.engine().counters().scheduler;
  EXPECT_EQ(counters.running + counters.waiting + counters.returning, 0);
  for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.used, 0);
}

// What a lost device was to compute ends with the reason, and nothing is begun on it again.
TEST_P(FailingSteps, ALostDeviceEndsEverything) {
  std::atomic<int> computed_after{0};
  std::atomic<bool> lost{false};
  Served served = serve([&](Ticket ticket) {
    if (lost) ++computed_after;
    if (ticket < 8) return;
    lost = true;
    fail(ErrorKind::device_lost, "the device has fallen off the bus");
  });
  for (const Answer& answer : ask_together(served.engine(), requests(served))) {
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_EQ(answer.error, "the device has fallen off the bus");
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_TRUE(served.engine().executor().device_lost());
  EXPECT_LE(computed_after, GetParam().steps_in_flight - 1);
  try {
    served.engine().submit(requests(served)[0]);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_lost);
  }
}

// What a step gave is committed before anybody looks at the counters.
TEST_P(FailingSteps, CountersThatCannotBeReadEndNothing) {
  Served sound(model(), 256, 64, {.sequences = 4});
  const std::vector<EngineRequest> asked = requests(sound);
  const std::vector<Answer> expected = ask_together(sound.engine(), asked);
  std::atomic<int> observed{0};
  observing_ = [&] {
    ++observed;
    fail(ErrorKind::internal, "the counters cannot be read");
  };
  Served served = serve([](Ticket) {});
  EXPECT_EQ(ask_together(served.engine(), asked), expected);
  EXPECT_GT(observed, 0);
  EXPECT_EQ(served.engine().counters().failed_steps, 0u);
  EXPECT_FALSE(served.engine().broken());
}

// It may be the counters that tell of it first, and no step may follow that would.
TEST_P(FailingSteps, ADeviceFoundLostByItsCountersEndsEverything) {
  observing_ = [] { fail(ErrorKind::device_lost, "the device has fallen off the bus"); };
  Served served = serve([](Ticket) {});
  for (const Answer& answer : ask_together(served.engine(), requests(served))) {
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_EQ(answer.error, "the device has fallen off the bus");
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_TRUE(served.engine().executor().device_lost());
  EXPECT_TRUE(served.engine().broken());
  EXPECT_EQ(served.engine().counters().failed_steps, 0u);
  EXPECT_THROW(served.engine().submit(requests(served)[0]), Error);
}

// Nobody can be answered from what is left of a file.
TEST_P(FailingSteps, AFileThatIsCutShortEndsEverything) {
  std::atomic<bool> cut{false};
  const std::filesystem::path path = model();
  Served served = serve([&](Ticket ticket) {
    if (ticket < 8 || cut.exchange(true)) return;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  });
  for (const Answer& answer : ask_together(served.engine(), requests(served))) {
    EXPECT_EQ(answer.reason, FinishReason::failed);
    EXPECT_NE(answer.error.find("cut short"), std::string::npos) << answer.error;
    EXPECT_EQ(answer.endings, 1);
  }
  EXPECT_THROW(served.engine().submit(requests(served)[0]), Error);
}

}  // namespace
}  // namespace quarrel::test
