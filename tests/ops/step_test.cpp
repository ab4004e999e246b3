// Steps as such: tokens that the last step sampled, tickets, malformed plans, profiling, several backends on a device.
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kVocabulary = 12;

// A model of one product: the next token after t is where column t of the head is largest: here (5 t + 1) mod 12.
struct ChainBench {
  OpBench bench;
  Activation x, selected;
  Weight table, weight;

  explicit ChainBench(const DeviceUnderTest& device) : bench(device) {
    Floats identity(kVocabulary, 32);
    Floats next(kVocabulary, 32);
    for (std::size_t t = 0; t < kVocabulary; ++t) {
      identity.at(t, t) = 1.0f;
      next.at((5 * t + 1) % kVocabulary, t) = 3.0f;
    }
    x = bench.input(identity);
    selected = bench.activation(32, RowSet::outputs);
    table = bench.matrix(identity, WeightRole::embedding);
    weight = bench.matrix(next);
  }
  void ops(Backend& backend) const {
    backend.select_rows({.in = x, .out = selected});
    backend.head({.in = selected, .weight = weight});
    backend.sample({.slice = 0, .vocabulary = kVocabulary});
  }
  StepResults run(const StepPlan& plan) {
    return bench.run(plan, [&](Backend& b) { ops(b); });
  }
};

TEST(Step, TokensTakenFromTheLastStepsSamples) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench chain(device);
    const SampleRequest greedy;
    StepPlan first;
    first.sequences = {{.length = 1}, {.length = 1}, {.length = 1}};
    first.rows = {{.sequence = 0, .position = 0, .token = 2},
                  {.sequence = 1, .position = 0, .token = 7},
                  {.sequence = 2, .position = 0, .token = 11}};
    first.outputs = {{.row = 0, .sample = &greedy}, {.row = 2, .sample = &greedy}};
    const StepResults one = chain.run(first);
    ASSERT_EQ(one.samples.size(), 2u);
    EXPECT_EQ(one.samples[0].id, 11);
    EXPECT_EQ(one.samples[1].id, 8);
    // The outputs are named by their number, not by their row, and may change places.
    StepPlan second;
    second.sequences = {{.length = 2}, {.length = 2}};
    second.rows = {{.sequence = 1, .position = 1, .token = ~1}, {.sequence = 0, .position = 1, .token = ~0}};
    second.outputs = {{.row = 0, .sample = &greedy}, {.row = 1, .sample = &greedy}};
    const StepResults two = chain.run(second);
    EXPECT_EQ(two.samples[0].id, (5 * 8 + 1) % kVocabulary);
    EXPECT_EQ(two.samples[1].id, (5 * 11 + 1) % kVocabulary);
    StepPlan third = second;
    third.rows[0].token = ~2;
    EXPECT_THROW(chain.run(third), Error) << "there was no third output";
  });
}

TEST(Step, MasksAndSeenTokensAreCopiedWithTheStep) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench chain(device);
    std::vector<std::uint64_t> mask = {1u << 4};
    SampleRequest request;
    request.mask = mask;
    StepPlan plan = StepPlan().add(0, 1, {});
    plan.outputs = {{.row = 0, .sample = &request}};
    const StepResults results = chain.bench.run(plan, [&](Backend& b) {
      mask[0] = 0;  // the caller's memory is its own again once the step was taken
      chain.ops(b);
    });
    EXPECT_EQ(results.samples[0].id, 4);
  });
}

TEST(Step, TicketsAreAwaitedOnceAndAtMostTwoAreOpen) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench chain(device);
    chain.run(StepPlan().add(0, 1, {}));
    Backend& backend = chain.bench.backend();
    const std::vector<StepRow> rows = {{.sequence = 0, .position = 0, .token = 3}};
    const std::vector<StepSequence> sequences = {{.tables = {}, .length = 1}};
    const SampleRequest greedy;
    const std::vector<StepOutput> outputs = {{.row = 0, .sample = &greedy}};
    const Step step{.rows = rows, .generated_rows = 1, .sequences = sequences, .outputs = outputs, .snapshots = {}};
    EXPECT_EQ(backend.shape_of(step), (StepShape{.generated_rows = 1, .generated_outputs = 1}));
    const Backend::Forward forward = [&](Backend& b, const StepShape&) {
      b.embed({.out = chain.x, .table = chain.table});
      chain.ops(b);
    };
    const Ticket a = backend.submit(step, forward);
    const Ticket b = backend.submit(step, forward);
    EXPECT_THROW(backend.submit(step, forward), Error);
    EXPECT_EQ(backend.wait(b).samples.size(), 1u) << "in any order";
    EXPECT_EQ(backend.wait(a).samples.size(), 1u);
    EXPECT_THROW(backend.wait(a), Error);
  });
}

TEST(Step, MalformedPlansAreErrors) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench chain(device);
    const StepPlan good = StepPlan().add(0, 3, {});
    const auto refuses = [&](const char* what, auto&& change) {
      StepPlan plan = good;
      change(plan);
      EXPECT_THROW(chain.run(plan), Error) << what;
    };
    EXPECT_NO_THROW(chain.run(good));
    refuses("token beyond the vocabulary", [](StepPlan& p) { p.rows[1].token = kVocabulary; });
    refuses("unknown sequence", [](StepPlan& p) { p.rows[1].sequence = 1; });
    refuses("negative position", [](StepPlan& p) { p.rows[1].position = -1; });
    refuses("output of no row", [](StepPlan& p) { p.outputs = {{.row = 3}}; });
    refuses("outputs out of order", [](StepPlan& p) { p.outputs = {{.row = 1}, {.row = 0}}; });
    refuses("slot beyond the state", [](StepPlan& p) { p.sequences[0].state_out = 0; });
    refuses("snapshot beyond the state", [](StepPlan& p) { p.snapshots = {{.row = 0, .slot = 0}}; });
    refuses("a table for a group that is not there", [](StepPlan& p) { p.sequences[0].tables = {{0}}; });
    refuses("too many generated rows", [](StepPlan& p) { p.generated_rows = 4; });
    EXPECT_NO_THROW(chain.run(good)) << "an error leaves the backend usable";
  });
}

TEST(Step, ProfileNamesWhatRan) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench chain(device);
    StepPlan plan = StepPlan().add(0, 1, {});
    plan.outputs = {{.row = 0}};
    chain.run(plan);
    EXPECT_TRUE(chain.bench.backend().profile().empty());
    chain.bench.backend().set_profiling(true);
    chain.run(plan);
    chain.run(plan);
    std::map<std::string_view, std::uint64_t> calls;
    for (const OpTime& time : chain.bench.backend().profile()) calls[time.name] = time.calls;
    EXPECT_EQ(calls["embedding"], 2u);
    EXPECT_EQ(calls["head"], 2u);
    EXPECT_EQ(calls["sampling"], 2u);
    EXPECT_EQ(calls.count("attention"), 0u);
  });
}

TEST(Step, BackendsOfOneDeviceTakeTurns) {
  for_each_device([](const DeviceUnderTest& device) {
    constexpr int kThreads = 3;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    std::vector<int> right(kThreads, 0);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&device, &right, t] {
        ChainBench chain(device);
        const SampleRequest greedy;
        TokenId token = t;
        for (int i = 0; i < 50; ++i) {
          StepPlan plan = StepPlan().add(0, 1, {}, token);
          plan.outputs = {{.row = 0, .sample = &greedy}};
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

TEST(Step, AnErrorInAnOpGivesTheDeviceBack) {
  for_each_device([](const DeviceUnderTest& device) {
    ChainBench broken(device);
    ChainBench whole(device);
    const StepPlan plan = StepPlan().add(0, 1, {});
    EXPECT_THROW(broken.bench.run(plan, [](Backend&) { fail(ErrorKind::internal, "on purpose"); }), Error);
    EXPECT_NO_THROW(whole.run(plan));
    EXPECT_NO_THROW(broken.run(plan));
  });
}

}  // namespace
}  // namespace quarrel::test
