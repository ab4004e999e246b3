// Steps as such: tokens that the last step sampled, masks, tickets, profiling, several backends on a device.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "ops/chain_fixture.h"

namespace quarrel::test {
namespace {

TEST(Step, TokensTakenFromTheLastStepsSamples) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    const SamplingParams greedy;
    StepPlan first;
    first.sequences = {{.length = 1}, {.length = 1}, {.length = 1}};
    first.rows = {{.sequence = 0, .position = 0, .token = 2},
                  {.sequence = 1, .position = 0, .token = 7},
                  {.sequence = 2, .position = 0, .token = 11}};
    first.lane_starts = {{.lane = 0, .sampling = &greedy}, {.lane = 1, .sampling = &greedy}};
    first.outputs = {{.row = 0, .lane = 0}, {.row = 2, .lane = 1}};
    const StepResults one = chain.run(first);
    ASSERT_EQ(one.samples.size(), 2u);
    EXPECT_EQ(one.samples[0].id, 11);
    EXPECT_EQ(one.samples[1].id, 8);
    // The outputs are named by their number, not by their row, and may change places.
    StepPlan second;
    second.sequences = {{.length = 2}, {.length = 2}};
    second.rows = {{.sequence = 1, .position = 1, .token = ~1}, {.sequence = 0, .position = 1, .token = ~0}};
    second.outputs = {{.row = 0, .lane = 1}, {.row = 1, .lane = 0}};
    const StepResults two = chain.run(second);
    EXPECT_EQ(two.samples[0].id, (5 * 8 + 1) % kVocabulary);
    EXPECT_EQ(two.samples[1].id, (5 * 11 + 1) % kVocabulary);
    StepPlan third = second;
    third.rows[0].token = ~2;
    EXPECT_THROW(chain.run(third), Error) << "there was no third output";
  });
}

TEST(Step, MasksAreFilledWhileTheStepIsSubmitted) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    const SamplingParams greedy;
    std::vector<std::uint64_t> mask = {0};
    int calls = 0;
    StepPlan plan = StepPlan().add(0, 1, {});
    plan.lane_starts = {{.lane = 0, .sampling = &greedy}};
    plan.outputs = {{.row = 0, .lane = 0, .mask = mask}};
    plan.fill_masks = [&] {
      ++calls;
      mask[0] = 1u << 4;
    };
    const Ticket ticket = chain.submit(plan);
    EXPECT_EQ(calls, 1);
    mask[0] = 0;  // the caller's memory is its own again once the step was submitted
    const SampleResult result = chain.fixture.backend().wait(ticket).samples[0];
    EXPECT_EQ(result.outcome, SampleOutcome::token);
    EXPECT_EQ(result.id, 4);
    plan.fill_masks = {};
    EXPECT_EQ(chain.run(plan).samples[0].outcome, SampleOutcome::no_token) << "an empty mask";
  });
}

TEST(Step, ABiasMayLeaveNoToken) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    SamplingParams nothing;
    for (TokenId id = 0; id < kVocabulary; ++id) {
      nothing.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
    }
    StepPlan plan = StepPlan().add(0, 1, {});
    plan.lane_starts = {{.lane = 0, .sampling = &nothing}};
    plan.outputs = {{.row = 0, .lane = 0}};
    const SampleResult result = chain.run(plan).samples[0];
    EXPECT_EQ(result.outcome, SampleOutcome::no_token);
    EXPECT_EQ(result.id, -1);
  });
}

TEST(Step, TicketsAreAwaitedOnceAndAtMostTwoAreOpen) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    Backend& backend = chain.fixture.backend();
    const SamplingParams greedy;
    StepPlan plan = StepPlan().add(0, 1, {}, 3);
    plan.generated_rows = 1;
    plan.lane_starts = {{.lane = 0, .sampling = &greedy}};
    plan.outputs = {{.row = 0, .lane = 0}};
    const Step step{.rows = plan.rows, .generated_rows = 1, .outputs = plan.outputs};
    EXPECT_EQ(exact_shape(step), (StepShape{.generated_rows = 1, .generated_outputs = 1, .tokens = true}));
    const Ticket a = chain.submit(plan);
    const Ticket b = chain.submit(plan);
    EXPECT_THROW(chain.submit(plan), Error);
    EXPECT_EQ(backend.wait(b).samples.size(), 1u) << "in any order";
    EXPECT_EQ(backend.wait(a).samples.size(), 1u);
    EXPECT_THROW(backend.wait(a), Error);
    EXPECT_THROW(backend.wait(0), Error);
    EXPECT_NO_THROW(chain.run(plan));
  });
}

// Two tickets open all the time, each step's tokens those of the step before, which nobody has looked at yet.
TEST(Step, TwoStepsInFlightGoOnFromEachOther) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    const SamplingParams greedy;
    StepPlan plan = StepPlan().add(0, 1, {}, 2).add(0, 1, {}, 7).add(0, 1, {}, 4);
    plan.generated_rows = 3;
    plan.lane_starts = {
        {.lane = 0, .sampling = &greedy}, {.lane = 1, .sampling = &greedy}, {.lane = 2, .sampling = &greedy}};
    plan.outputs = {
        {.row = 0, .logits = true, .lane = 0}, {.row = 1, .lane = 1}, {.row = 2, .logits = true, .lane = 2}};
    std::vector<TokenId> expected = {2, 7, 4};
    Ticket open = chain.submit(plan);
    plan.lane_starts.clear();
    for (std::int32_t step = 1; step < 20; ++step) {
      for (std::size_t r = 0; r < 3; ++r) {
        plan.rows[r].token = ~static_cast<std::int32_t>(r);
        plan.rows[r].position = step;
        plan.sequences[r].length = step + 1;
      }
      const Ticket next = chain.submit(plan);
      const StepResults results = chain.fixture.backend().wait(open);
      ASSERT_EQ(results.logits.size(), 2u * kVocabulary);
      for (std::size_t r = 0; r < 3; ++r) {
        expected[r] = next_in_chain(expected[r]);
        EXPECT_EQ(results.samples[r].id, expected[r]);
        if (r == 1) continue;
        // Good while the step behind it runs, and until yet another one was submitted.
        EXPECT_GT(results.logits[(r == 0 ? 0 : kVocabulary) + as_size(expected[r])], 2.9f);
      }
      open = next;
    }
    chain.fixture.backend().wait(open);
  });
}

TEST(Step, ProfileNamesWhatRan) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture chain(device);
    StepPlan plan = StepPlan().add(0, 1, {});
    plan.outputs = {{.row = 0, .kind = OutputKind::logits, .logits = true}};
    chain.run(plan);
    EXPECT_TRUE(chain.fixture.backend().profile().empty());
    chain.fixture.backend().set_profiling(true);
    chain.run(plan);
    chain.run(plan);
    std::map<std::string_view, std::uint64_t> calls;
    for (const OpTime& time : chain.fixture.backend().profile()) calls[time.name] = time.calls;
    EXPECT_EQ(calls["embedding"], 2u);
    EXPECT_EQ(calls["head"], 2u);
    EXPECT_EQ(calls["sampling"], 2u);
    EXPECT_EQ(calls.count("attention"), 0u);
  });
}

TEST(Step, BackendsOfOneDeviceShareIt) {
  for_each_device([](const DeviceUnderTest& device) {
    constexpr int kThreads = 3;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    std::vector<int> right(kThreads, 0);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&device, &right, t] {
        ChainFixture chain(device);
        const SamplingParams greedy;
        TokenId token = t;
        for (int i = 0; i < 50; ++i) {
          StepPlan plan = StepPlan().add(0, 1, {}, token);
          plan.lane_starts = {{.lane = 0, .sampling = &greedy}};
          plan.outputs = {{.row = 0, .lane = 0}};
          const TokenId next = chain.run(plan).samples[0].id;
          right[as_size(t)] += static_cast<int>(next == (5 * token + 1) % kVocabulary);
          token = next;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, std::vector<int>(kThreads, 50));
  });
}

// A text of many rows does not keep the stream of another model waiting until its end.
TEST(Step, AShortStepRunsBetweenTwoOpsOfALongOne) {
  for_each_device([](const DeviceUnderTest& device) {
    if (device.device.name() != "cpu") return;  // the reference computes a step at a stretch
    ChainFixture quick(device);
    const StepPlan one_row = StepPlan().add(0, 1, {});
    quick.run(one_row);
    OpFixture slow(device);
    const Floats values = random_matrix(8, 64, 31);
    const Activation in = slow.input(values);
    const Activation out = slow.activation(64);
    const LinearOp linear{.in = in, .weight = slow.matrix(random_matrix(64, 64, 32)), .out = out};
    const StepPlan rows = StepPlan().add(0, 8, {});
    const Floats alone = slow.run(rows, out, [&](Backend& b) { b.linear(linear); });

    std::atomic<bool> done = false;
    bool done_before_the_end = false;
    std::thread other;
    const Floats beside = slow.run(rows, out, [&](Backend& b) {
      other = std::thread([&] {
        quick.run(one_row);
        done = true;
      });
      const auto start = Clock::now();
      while (!done && seconds_since(start) < 30) b.linear(linear);
      done_before_the_end = done;
    });
    other.join();
    EXPECT_TRUE(done_before_the_end);
    EXPECT_EQ(beside.values, alone.values);
  });
}

TEST(Step, AnErrorInAnOpGivesTheDeviceBack) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainFixture broken(device);
    ChainFixture whole(device);
    const StepPlan plan = StepPlan().add(0, 1, {});
    EXPECT_THROW(broken.fixture.run(plan, [](Backend&) { fail(ErrorKind::internal, "on purpose"); }), Error);
    EXPECT_NO_THROW(whole.run(plan));
    EXPECT_NO_THROW(broken.run(plan));
  });
}

}  // namespace
}  // namespace quarrel::test
