// Several models on one device, driven from several threads: their steps take turns, and nobody's numbers change.
// Small, because it also runs under the thread sanitizer.
#include <gtest/gtest.h>

#include <thread>

#include "backend/create.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

TEST(SharedDevice, StepsOfSeveralModelsTakeTurns) {
  const TempDir folder;
  const auto llama = write_toy("llama", folder.path(), {.type = QuantType::q8_0});
  const auto gemma = write_toy("gemma3", folder.path());
  const auto tokens = golden_tokens();
  for (const char* backend : {"cpu", "reference"}) {
    SCOPED_TRACE(backend);
    const auto device = make_device({.backend = backend, .threads = 3});
    const auto llama_alone = logits_of(llama, *device, tokens, {.chunk = 5});
    const auto gemma_alone = logits_of(gemma, *device, tokens, {.chunk = 5});
    std::vector<float> llama_beside, gemma_beside;
    std::thread first([&] { llama_beside = logits_of(llama, *device, tokens, {.chunk = 5}); });
    std::thread second([&] { gemma_beside = logits_of(gemma, *device, tokens, {.chunk = 5}); });
    first.join();
    second.join();
    EXPECT_EQ(llama_beside, llama_alone);
    EXPECT_EQ(gemma_beside, gemma_alone);
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
