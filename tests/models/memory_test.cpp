// What a model is said to take and what it takes; budgets that are kept; experts that come and go without a trace in
// the results.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <regex>

#include "backend/create.h"
#include "base/error.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/other_device.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::uint64_t kMegabyte = 1000 * 1000;

// A line of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  std::string name;
  while (file >> name) {
    std::uint64_t kibibytes = 0;
    if (name == field + ":" && file >> kibibytes) return kibibytes * 1024;
    std::string rest;
    std::getline(file, rest);
  }
  return 0;
}

struct Measured {
  std::uint64_t anonymous = 0;
  std::uint64_t mapped = 0;
};

// Every position of every sequence filled, in full steps with as many outputs as a slice has: the most it can take.
void fill(Executor& executor, std::int32_t sequences) {
  const auto tokens = golden_tokens(static_cast<std::size_t>(executor.context()));
  std::vector<Want> wants;
  const std::int32_t first = executor.context() - std::min(executor.backend().logit_rows(), executor.context());
  for (std::int32_t row = first; row < executor.context(); ++row) {
    wants.push_back({.index = row, .score = 0});
  }
  Sequences texts(executor);
  std::vector<TestSequence> all;
  for (std::int32_t i = 0; i < sequences; ++i) all.push_back(texts.make());
  const std::int32_t together = std::max(1, executor.batch_rows() / executor.context());
  for (std::int32_t i = 0; i < sequences; i += together) {
    if (together == 1) {
      texts.run_chunked({.sequence = &all[static_cast<std::size_t>(i)], .tokens = tokens, .wants = wants});
      continue;
    }
    std::vector<Feed> feeds;
    for (std::int32_t s = i; s < std::min(i + together, sequences); ++s) {
      feeds.push_back({.sequence = &all[static_cast<std::size_t>(s)], .tokens = tokens, .wants = wants});
    }
    texts.run(feeds);
  }
  // The slots beside those of the sequences are touched too.
  std::vector<SlotCopy> copies;
  for (std::int32_t slot = 1; slot < executor.plan().state_slots; ++slot) copies.push_back({.from = 0, .to = slot});
  executor.step({.slot_copies = copies});
}

// In a process of its own, so that nothing else's memory is counted.
Measured measure(const std::filesystem::path& path, const ExecutorOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) fail(ErrorKind::io, "no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    Measured result;
    try {
      const auto device = make_device({.backend = "cpu", .threads = 2});
      const std::uint64_t anonymous = status_bytes("RssAnon");
      const std::uint64_t mapped = status_bytes("RssFile");
      Executor executor(GgufFile::open(path), *device, options);
      fill(executor, options.sequences);
      result = {.anonymous = status_bytes("RssAnon") - anonymous, .mapped = status_bytes("RssFile") - mapped};
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    const bool written = ::write(ends[1], &result, sizeof result) == sizeof result;
    ::_exit(written ? 0 : 1);
  }
  Measured result;
  const bool read = ::read(ends[0], &result, sizeof result) == sizeof result;
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!read || status != 0) fail(ErrorKind::internal, "the measuring process failed");
  return result;
}

void expect_estimate(const std::filesystem::path& path, const ExecutorOptions& options) {
  const auto device = make_device({.backend = "cpu", .threads = 2});
  const MemoryPlan plan = plan_memory(GgufFile::open(path), *device, options);
  const Measured measured = measure(path, options);
  // Mapped bytes are those of the file's matrices, touched or not; they are compared as a bound.
  const auto said = static_cast<double>(plan.anonymous());
  const auto took = static_cast<double>(measured.anonymous);
  const double margin = std::max(0.02 * static_cast<double>(plan.total()), 32.0 * kMegabyte);
  EXPECT_NEAR(took, said, margin);
  const std::uint64_t may_map = plan.shared_weights + (plan.expert_cache ? 0 : plan.expert_weights);
  EXPECT_LE(measured.mapped, may_map + 16 * kMegabyte);
  std::printf("said %.1f MB, took %.1f MB anonymous; may map %.1f MB, mapped %.1f MB\n", said / 1e6, took / 1e6,
              static_cast<double>(may_map) / 1e6, static_cast<double>(measured.mapped) / 1e6);
}

TEST(MemoryEstimate, HoldsOverContextsAndSequences) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TempDir folder;
  // Many keys and values for little arithmetic.
  const auto dense = write_toy("llama", folder.path(),
                               {.embedding = 64, .layers = 2, .heads = 8, .kv_heads = 8, .head = 128, .rotary = 64});
  for (const auto& [context, sequences] : {std::pair{64, 1}, {256, 16}, {256, 96}, {1024, 16}}) {
    SCOPED_TRACE(std::to_string(context) + " x " + std::to_string(sequences));
    expect_estimate(dense, {.context = context, .sequences = sequences});
  }
  expect_estimate(dense, {.context = 1024, .sequences = 8, .kv_type = KvType::f32});
  expect_estimate(write_toy("gpt-oss", folder.path()), {.context = 512, .sequences = 16});
  const auto recurrent = write_toy(
      "mamba2", folder.path(), {.embedding = 64, .ssm = ToySsm{.inner = 2048, .state = 128, .heads = 32, .groups = 1}});
  expect_estimate(recurrent, {.context = 64, .sequences = 32});
}

TEST(MemoryEstimate, HoldsOverExpertCountsAndBudgets) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TempDir folder;
  for (const std::uint32_t experts : {4u, 16u}) {
    SCOPED_TRACE(experts);
    const auto file = write_toy("mixtral", folder.path(), {.embedding = 256, .feed_forward = 768, .experts = experts});
    expect_estimate(file, {.context = 256});
    const auto device = make_device({.backend = "cpu", .threads = 2});
    const std::uint64_t all = plan_memory(GgufFile::open(file), *device, {.context = 256}).expert_weights;
    EXPECT_EQ(all, std::uint64_t{experts} * 3 * 3 * 256 * 768 * 4);
    expect_estimate(file, {.context = 256, .expert_memory = all / 2});
    expect_estimate(file, {.context = 256, .expert_memory = 2 * all});
    const MemoryPlan whole = plan_memory(GgufFile::open(file), *device, {.context = 256});
    expect_estimate(file, {.context = 256, .memory_budget = whole.total() - all / 2});
  }
}

TEST(MemoryBudget, ChoosesTheContextAndThenTheExperts) {
  const TempDir folder;
  const auto device = make_device({.backend = "cpu"});
  const auto dense = write_toy("llama", folder.path());
  const MemoryPlan whole = plan_memory(GgufFile::open(dense), *device, {});
  EXPECT_EQ(whole.context, 512);
  const std::uint64_t budget = whole.total() - whole.kv / 2;
  const MemoryPlan half = plan_memory(GgufFile::open(dense), *device, {.memory_budget = budget});
  EXPECT_GT(half.context, 0);
  EXPECT_LT(half.context, 512);
  EXPECT_LE(half.total(), budget);
  EXPECT_GT(plan_memory(GgufFile::open(dense), *device, {.context = half.context + 16}).total(), budget);

  const auto experts = write_toy("mixtral", folder.path());
  const MemoryPlan all = plan_memory(GgufFile::open(experts), *device, {});
  EXPECT_FALSE(all.expert_cache.has_value());
  const MemoryPlan fewer =
      plan_memory(GgufFile::open(experts), *device, {.memory_budget = all.total() - all.expert_weights / 2});
  EXPECT_EQ(fewer.context, 512);
  ASSERT_TRUE(fewer.expert_cache.has_value());
  EXPECT_LE(fewer.total(), all.total() - all.expert_weights / 2);
}

std::string refusal(const std::filesystem::path& file, const ExecutorOptions& options) {
  const auto device = make_device({.backend = "cpu"});
  try {
    plan_memory(GgufFile::open(file), *device, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(MemoryBudget, RefusesWithASentence) {
  const TempDir folder;
  const auto dense = write_toy("llama", folder.path());
  const std::string long_context = refusal(dense, {.context = 1 << 30});
  EXPECT_NE(long_context.find("1073741824 tokens"), std::string::npos) << long_context;
  EXPECT_NE(long_context.find("would fit (--ctx)"), std::string::npos) << long_context;
  const std::string budget = refusal(dense, {.context = 512, .memory_budget = kMegabyte});
  EXPECT_NE(budget.find("--memory-budget"), std::string::npos) << budget;
  const std::string few = refusal(write_toy("mixtral", folder.path()), {.expert_memory = 1000});
  EXPECT_NE(few.find("--expert-memory"), std::string::npos) << few;
}

// Copies for large batches come last: neither context nor budget gives way for them.
TEST(Mirrors, GetWhatEverythingElseLeaves) {
  constexpr std::size_t kMirrors = 10'000'000;
  const TempDir folder;
  const auto file = write_toy("llama", folder.path());
  OtherDevice roomy({.mirrors = kMirrors});
  const MemoryPlan all = plan_memory(GgufFile::open(file), roomy, {});
  EXPECT_TRUE(all.mirrored);
  EXPECT_EQ(all.mirrors, kMirrors);
  EXPECT_TRUE(backend_options(all).mirrors);
  const MemoryPlan plain = plan_memory(GgufFile::open(file), roomy, {.mirrors = false});
  EXPECT_EQ(plain.mirrors, 0u);
  EXPECT_EQ(plain.prepared + kMirrors, all.prepared);
  EXPECT_FALSE(backend_options(plain).mirrors);

  EXPECT_TRUE(plan_memory(GgufFile::open(file), roomy, {.memory_budget = all.total()}).mirrored);
  const MemoryPlan within = plan_memory(GgufFile::open(file), roomy, {.memory_budget = all.total() - 1});
  EXPECT_FALSE(within.mirrored);
  EXPECT_EQ(within.context, all.context);

  // A tenth stays free.
  OtherDevice enough({.memory = all.anonymous() / 9 * 10 + 1000, .mirrors = kMirrors});
  EXPECT_TRUE(plan_memory(GgufFile::open(file), enough, {}).mirrored);
  OtherDevice tight({.memory = all.anonymous() / 9 * 10 - 1000, .mirrors = kMirrors});
  const MemoryPlan fitting = plan_memory(GgufFile::open(file), tight, {.memory_budget = std::uint64_t{1} << 40});
  EXPECT_FALSE(fitting.mirrored);
  EXPECT_EQ(fitting.context, all.context);
}

// The numbers in brackets are the whole.
TEST(MemoryBudget, TheRefusalsPartsAddUp) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path(), {.embedding = 1024, .feed_forward = 4096, .heads = 16});
  for (const std::optional<std::uint64_t> budget : {std::optional<std::uint64_t>(), std::optional(kMegabyte)}) {
    OtherDevice device({.memory = 8 * kMegabyte});
    try {
      plan_memory(GgufFile::open(file), device, {.context = 512, .repack = false, .memory_budget = budget});
      ADD_FAILURE() << "it was taken";
    } catch (const Error& error) {
      const std::string text = error.what();
      std::smatch parts;
      ASSERT_TRUE(std::regex_search(
          text, parts,
          std::regex(
              "needs (\\d+) MiB \\((\\d+) of (?:decoded )?weights, (\\d+) of KV cache, (\\d+) of state, (\\d+) of "
              "workspace\\)")))
          << text;
      const auto number = [&](std::size_t i) { return std::stoi(parts[i]); };
      EXPECT_NEAR(number(1), number(2) + number(3) + number(4) + number(5), 2) << text;
    }
  }
}

// What is more exact than asked for will do; what is coarser will not.
TEST(Activations, AreRefusedWhereTheDeviceIsCoarser) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path());
  OtherDevice device({.activations = {ActivationPrecision::int8_split}});
  for (const ActivationPrecision asked :
       {ActivationPrecision::outlier_groups, ActivationPrecision::int8_split, ActivationPrecision::int8}) {
    EXPECT_NO_THROW(plan_memory(GgufFile::open(file), device, {.activations = asked})) << name_of(asked);
  }
  try {
    plan_memory(GgufFile::open(file), device, {.activations = ActivationPrecision::f32});
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("coarser than f32 (--activations)"), std::string::npos) << error.what();
  }
  const auto reference = make_device({.backend = "reference"});
  EXPECT_NO_THROW(plan_memory(GgufFile::open(file), *reference, {.activations = ActivationPrecision::int8}));
}

// A backend that would use all experts where they lie must not take a budget for them and ignore it.
TEST(MemoryBudget, IsRefusedWhereItCannotBeKept) {
  const TempDir folder;
  const auto file = write_toy("mixtral", folder.path());
  const auto device = make_device({.backend = "reference"});
  const MemoryPlan whole = plan_memory(GgufFile::open(file), *device, {});
  for (const ExecutorOptions& options : {ExecutorOptions{.expert_memory = whole.expert_weights / 2},
                                         ExecutorOptions{.memory_budget = whole.total() - whole.expert_weights / 2}}) {
    try {
      plan_memory(GgufFile::open(file), *device, options);
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("reference"), std::string::npos) << error.what();
    }
  }
}

std::vector<float> logits_with(const std::filesystem::path& file, Device& device, const ExecutorOptions& options,
                               Observations& seen) {
  Executor executor(GgufFile::open(file), device, options);
  const auto tokens = golden_tokens();
  const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
  std::vector<float> logits(tokens.size() * vocabulary);
  std::vector<Want> wants;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    wants.push_back({.index = static_cast<std::int32_t>(i), .logits = logits.data() + i * vocabulary});
  }
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = wants}, 5);
  seen = executor.observe();
  return logits;
}

TEST(ExpertMemory, ChangesNoBitAndCountsWhatItDoes) {
  const TempDir folder;
  for (const char* toy : {"mixtral", "gpt-oss", "nemotron_h_moe", "granitehybrid"}) {
    for (const QuantType type : {QuantType::f32, QuantType::q8_0}) {
      const auto file = write_toy(toy, folder.path(), {.type = type});
      const auto device = make_device({.backend = "cpu"});
      SCOPED_TRACE(toy);
      Observations free_run;
      const auto expected = logits_with(file, *device, {.context = 48}, free_run);
      EXPECT_EQ(free_run.expert_cache_bytes, 0u);
      const std::uint64_t all = plan_memory(GgufFile::open(file), *device, {}).expert_weights;
      std::uint64_t least = all;
      try {
        plan_memory(GgufFile::open(file), *device, {.expert_memory = 1});
      } catch (const Error&) {
        // The least that works is found by halving.
        for (std::uint64_t low = 1; low < least;) {
          const std::uint64_t middle = low + (least - low) / 2;
          try {
            plan_memory(GgufFile::open(file), *device, {.expert_memory = middle});
            least = middle;
          } catch (const Error&) {
            low = middle + 1;
          }
        }
      }
      for (const std::uint64_t budget : {all / 4 * 3, all / 2, least}) {
        Observations seen;
        EXPECT_EQ(logits_with(file, *device, {.context = 48, .expert_memory = budget}, seen), expected) << budget;
        EXPECT_GT(seen.expert_misses, 0u);
        EXPECT_GT(seen.expert_bytes_read, 0u);
        EXPECT_LE(seen.expert_cache_bytes, budget);
        if (budget > all / 2) {
          EXPECT_GT(seen.expert_hit_rate(), 0.0);
        }
      }
    }
  }
}

TEST(Observed, ExpertChoicesSumToUsedTimesTokens) {
  const TempDir folder;
  for (const auto& [toy, used] : {std::pair{"mixtral", 2u}, {"nemotron_h_moe", 3u}}) {
    const auto file = write_toy(toy, folder.path());
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + toy);
      Observations seen;
      logits_with(file, *named.device, {.context = 48}, seen);
      EXPECT_EQ(seen.rows, kGoldenTokens);
      EXPECT_EQ(seen.steps, 10u);
      ASSERT_FALSE(seen.experts.empty());
      for (const ExpertUse& use : seen.experts) {
        EXPECT_EQ(use.chosen.size(), 8u);
        EXPECT_EQ(std::accumulate(use.chosen.begin(), use.chosen.end(), std::uint64_t{0}), used * kGoldenTokens);
        const ExpertBalance balance = balance_of(use);
        EXPECT_GE(balance.most, 1.0 / 8.0);
        EXPECT_LE(balance.least, 1.0 / 8.0);
      }
    }
  }
}

// One of the first steps and one in 64 have the clocks on, and nobody sees a difference but in the times.
TEST(Observed, ExpertsAndScansAreTimedNowAndThen) {
  const TempDir folder;
  const auto path = write_toy("nemotron_h_moe", folder.path());
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(path), *named.device, {.context = 256});
    const auto tokens = golden_tokens(160);
    Sequences texts(executor);
    TestSequence sequence = texts.make();
    const auto run = [&](std::size_t from, std::size_t count) {
      for (std::size_t i = from; i < from + count; ++i) {
        texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).subspan(i, 1)});
      }
    };
    run(0, 1);
    EXPECT_EQ(executor.observe().moe_layers.calls, 0u) << "the first step is not typical";
    run(1, 7);
    const Observations once = executor.observe();
    EXPECT_TRUE(once.times.empty()) << "the clocks are off again";
    const auto experts = static_cast<std::uint64_t>(once.experts.size());  // layers that have them
    EXPECT_EQ(once.moe_layers.calls, experts);
    EXPECT_EQ(once.moe_routing.calls, experts);
    EXPECT_GT(once.moe_layers.seconds, once.moe_routing.seconds);
    EXPECT_GT(once.moe_routing.seconds, 0.0);
    EXPECT_EQ(once.ssm_scans.calls, 2u);
    EXPECT_EQ(once.ssm_convolutions.calls, 2u);
    const auto& buckets = once.moe_layers.micros.counts;
    EXPECT_EQ(std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0}), experts);
    run(8, 64);
    EXPECT_EQ(executor.observe().moe_layers.calls, 2 * experts);
    run(72, 64);
    EXPECT_EQ(executor.observe().moe_layers.calls, 3 * experts);
    EXPECT_EQ(executor.observe().step_rows.counts[0], 136u) << "all steps had one row";
    executor.watch_times(true);
    run(136, 4);
    EXPECT_FALSE(executor.observe().times.empty()) << "whoever watches has them all the time";
  }
}

TEST(Observed, WhereClocksCostTimeStepsAreTimedSeldom) {
  const TempDir folder;
  OtherDevice device({.costly_clocks = true});
  Executor executor(GgufFile::open(write_toy("nemotron_h_moe", folder.path())), device, {.context = 256});
  const auto tokens = golden_tokens(80);
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).subspan(i, 1)});
  }
  const Observations seen = executor.observe();
  EXPECT_EQ(seen.moe_layers.calls, 2 * seen.experts.size()) << "the second step, and one of a thousand";
  EXPECT_TRUE(seen.times.empty()) << "nobody watches them";
}

TEST(Observed, AStepWithTheClocksOnHasTheSameBits) {
  const TempDir folder;
  const auto path = write_toy("nemotron_h_moe", folder.path());
  const auto device = make_device({.backend = "cpu"});
  const auto tokens = golden_tokens(16);
  // One token a step, after so many steps of another text: of all steps the second and the ninth have the clocks on.
  const auto logits_after = [&](std::size_t others) {
    Executor executor(GgufFile::open(path), *device, {.context = 64, .sequences = 2});
    Sequences texts(executor);
    TestSequence other = texts.make(), text = texts.make();
    for (std::size_t i = 0; i < others; ++i) {
      texts.run_chunked({.sequence = &other, .tokens = std::span(tokens).subspan(i, 1)});
    }
    std::vector<std::vector<float>> logits;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      logits.emplace_back(static_cast<std::size_t>(executor.spec().vocabulary));
      const Want want{.index = 0, .logits = logits.back().data()};
      texts.run_chunked({.sequence = &text, .tokens = std::span(tokens).subspan(i, 1), .wants = {&want, 1}});
    }
    EXPECT_GT(executor.observe().moe_layers.calls, 0u);
    return logits;
  };
  const auto logits = logits_after(0);
  for (const std::size_t others : {1u, 3u, 8u}) EXPECT_EQ(logits_after(others), logits) << others;
}

TEST(Observed, SizesAreCountedByPowersOfTwo) {
  SizeCounts sizes;
  for (const std::uint64_t value : {0u, 1u, 2u, 3u, 4u, 5u, 1u << 30}) sizes.add(value);
  EXPECT_EQ(sizes.counts[0], 2u);
  EXPECT_EQ(sizes.counts[1], 1u);
  EXPECT_EQ(sizes.counts[2], 2u);
  EXPECT_EQ(sizes.counts[3], 1u);
  EXPECT_EQ(sizes.counts[SizeCounts::kBuckets - 1], 1u);
}

TEST(Observed, TimesAreThereWhenAskedFor) {
  const TempDir folder;
  const auto device = make_device({.backend = "cpu"});
  Executor executor(GgufFile::open(write_toy("nemotron_h_moe", folder.path())), *device, {.context = 48});
  const auto tokens = golden_tokens();
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).first(8)});
  EXPECT_TRUE(executor.observe().times.empty());
  executor.watch_times(true);
  texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).subspan(8, 8)});
  const Observations seen = executor.observe();
  for (const char* name : {"router", "experts", "shared experts", "conv", "scan"}) {
    EXPECT_TRUE(std::ranges::any_of(seen.times, [&](const OpTime& op) { return op.name == name && op.calls > 0; }))
        << name;
  }
  EXPECT_EQ(seen.state_bytes, 2u * (3 * 384 + 256 * 32) * sizeof(float));
}

}  // namespace
}  // namespace quarrel::test
