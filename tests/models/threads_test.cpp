// Several models on one device, driven from several threads: their steps take turns, and nobody's numbers change.
// Small, because it also runs under the thread sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/create.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

TEST(SharedDevice, StepsOfSeveralModelsTakeTurns) {
  const TempDir folder;
  // Attention, a window, experts and both kinds of recurrent layers.
  const std::array files = {write_toy("llama", folder.path(), {.type = QuantType::q8_0}),
                            write_toy("gemma3", folder.path()), write_toy("nemotron_h_moe", folder.path()),
                            write_toy("mamba", folder.path())};
  const auto tokens = golden_tokens();
  for (const char* backend : {"cpu", "reference"}) {
    SCOPED_TRACE(backend);
    const auto device = make_device({.backend = backend, .threads = 3});
    std::array<std::vector<float>, files.size()> alone;
    std::array<std::vector<float>, files.size()> beside;
    for (std::size_t i = 0; i < files.size(); ++i) alone[i] = logits_of(files[i], *device, tokens, {.chunk = 5});
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < files.size(); ++i) {
      threads.emplace_back([&, i] { beside[i] = logits_of(files[i], *device, tokens, {.chunk = 5}); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(beside[i], alone[i]) << files[i];
  }
}

// Experts that workers read into the cache while the others wait for them.
TEST(SharedDevice, ExpertsComeAndGo) {
  const TempDir folder;
  const auto file = write_toy("mixtral", folder.path());
  const auto tokens = golden_tokens();
  const auto device = make_device({.backend = "cpu", .threads = 3});
  const auto expected = logits_of(file, *device, tokens, {.chunk = 5});
  const std::uint64_t experts = plan_memory(GgufFile::open(file), *device, {}).expert_weights;
  Executor executor(GgufFile::open(file), *device,
                    {.context = 48, .batch_rows = 48, .kv_type = KvType::f32, .expert_memory = experts / 3});
  std::vector<float> last(static_cast<std::size_t>(executor.spec().vocabulary));
  const Want want{.index = 47, .logits = last.data()};
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = {&want, 1}}, 5);
  EXPECT_TRUE(std::ranges::equal(last, std::span(expected).last(last.size())));
}

TEST(PinnedDevice, GivesTheSameBits) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path(), {.type = QuantType::q8_0});
  const auto tokens = golden_tokens();
  for (const char* backend : {"cpu", "reference"}) {
    const auto free = make_device({.backend = backend, .threads = 3});
    const auto pinned = make_device({.backend = backend, .threads = 3, .pin = true});
    EXPECT_EQ(logits_of(file, *pinned, tokens, {.chunk = 5}), logits_of(file, *free, tokens, {.chunk = 5})) << backend;
    EXPECT_EQ(free->description().find("pinned"), std::string::npos);
    EXPECT_NE(pinned->description().find("pinned"), std::string::npos);
  }
}

// Rows belong to the node that packed them; which node that is must not be seen, in streams (chunks of 1) or pieces.
TEST(SeveralNodes, GiveTheSameBits) {
  const TempDir folder;
  const auto tokens = golden_tokens();
  const std::vector<LogicalCpu> real = read_cpu_topology().cpus;
  CpuTopology two_nodes;
  for (int i = 0; i < 3; ++i) {
    two_nodes.cpus.push_back({.id = real[static_cast<std::size_t>(i) % real.size()].id, .core = i, .node = i / 2});
  }
  const IsaLevel level = available_levels().back();
  CpuDevice device({.count = 3}, level, two_nodes);
  ASSERT_EQ(device.pool().nodes(), 2);
  CpuDevice one_node({.count = 3}, level);
  for (const char* name : {"llama", "mixtral", "nemotron_h_moe"}) {
    const auto file = write_toy(name, folder.path(), {.type = QuantType::q8_0});
    for (const int chunk : {1, 24}) {
      EXPECT_EQ(logits_of(file, device, tokens, {.chunk = chunk}), logits_of(file, one_node, tokens, {.chunk = chunk}))
          << name << " in chunks of " << chunk;
    }
  }
}

TEST(SharedDevice, TwoDevicesInOneProcessDoNotMeet) {
  const TempDir folder;
  const auto file = write_toy("qwen3", folder.path());
  const auto tokens = golden_tokens();
  const auto one = make_device({.backend = "cpu", .threads = 2});
  const auto other = make_device({.backend = "cpu", .threads = 2});
  const auto alone = logits_of(file, *one, tokens);
  std::vector<float> beside_one, beside_other;
  std::thread first([&] { beside_one = logits_of(file, *one, tokens); });
  std::thread second([&] { beside_other = logits_of(file, *other, tokens); });
  first.join();
  second.join();
  EXPECT_EQ(beside_one, alone);
  EXPECT_EQ(beside_other, alone);
}

}  // namespace
}  // namespace quarrel::test
