// Contexts of thousands of tokens through whole toys: every device against the reference, in steps of several sizes,
// with rotation stretched by YaRN, with windows and sinks.
#include <gtest/gtest.h>

#include "models/runner.h"
#include "support/golden.h"
#include "support/rewritten_toy.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

// Logits of the last tokens of a text.
std::vector<float> last_logits(const std::filesystem::path& file, Device& device, std::span<const TokenId> tokens,
                               KvType kv_type, std::int32_t chunk) {
  constexpr std::size_t kWanted = 4;
  Executor executor(GgufFile::open(file), device,
                    {.context = static_cast<std::int32_t>(tokens.size()), .batch_rows = 512, .kv_type = kv_type});
  const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
  std::vector<float> logits(kWanted * vocabulary);
  std::vector<Want> wants;
  wants.reserve(kWanted);
  for (std::size_t i = 0; i < kWanted; ++i) {
    wants.push_back(
        {.index = static_cast<std::int32_t>(tokens.size() - kWanted + i), .logits = logits.data() + i * vocabulary});
  }
  Sequences texts(executor);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = wants}, chunk);
  return logits;
}

void expect_as_reference(const std::filesystem::path& file, std::size_t length) {
  const std::vector<TokenId> tokens = golden_tokens(length);
  const std::vector<NamedDevice> devices = all_devices();
  ASSERT_TRUE(devices.front().exact);
  const auto exact = last_logits(file, *devices.front().device, tokens, KvType::f32, 512);
  for (const NamedDevice& named : devices) {
    if (named.exact) continue;
    SCOPED_TRACE(named.name);
    const auto whole = last_logits(file, *named.device, tokens, KvType::f32, 512);
    EXPECT_LE(nmse(whole, exact), 1e-6);
    EXPECT_EQ(last_logits(file, *named.device, tokens, KvType::f32, 77), whole) << "steps of 77";
    EXPECT_LE(nmse(last_logits(file, *named.device, tokens, KvType::f16, 512), exact), 1e-5) << "an F16 cache";
  }
}

TEST(LongContext, StretchedByYarn) {
  constexpr std::uint32_t kContext = kSanitized ? 1024 : 4096;
  const TempDir folder;
  ToyRewriter toy("llama", {.embedding = 32,
                            .layers = 2,
                            .feed_forward = 32,
                            .heads = 2,
                            .kv_heads = 1,
                            .head = 16,
                            .rotary = 16,
                            .context = kContext});
  toy.put = [](GgufWriter& writer) {
    writer.put_string("llama.rope.scaling.type", "yarn");
    writer.put_f32("llama.rope.scaling.factor", 8.0f);
    writer.put_u32("llama.rope.scaling.original_context_length", 512);
  };
  expect_as_reference(toy.write(folder / "stretched.gguf"), kContext);
}

TEST(LongContext, WindowsAndSinks) {
  const TempDir folder;
  const auto file = write_toy("gpt-oss", folder.path(),
                              {.embedding = 32,
                               .layers = 2,
                               .feed_forward = 32,
                               .heads = 4,
                               .kv_heads = 1,
                               .head = 8,
                               .rotary = 8,
                               .context = 2048,
                               .experts = 2,
                               .experts_used = 1,
                               .window = 300});
  expect_as_reference(file, 2048);
}

}  // namespace
}  // namespace quarrel::test
