// Toys of other sizes and seeds against exact logits: what the recipes' round numbers could hide.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

struct Variant {
  const char* name;  // of the golden file
  const char* toy;
  ToyOptions options;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::vector<Variant> variants() {
  return {
      {"llama-odd",
       "llama",
       {.seed = 7,
        .embedding = 120,
        .layers = 2,
        .feed_forward = 200,
        .heads = 5,
        .kv_heads = 1,
        .head = 24,
        .rotary = 24}},
      {"qwen3-odd",
       "qwen3",
       {.seed = 3, .embedding = 96, .feed_forward = 176, .heads = 6, .kv_heads = 3, .head = 16, .rotary = 16}},
      {"mixtral-16",
       "mixtral",
       {.seed = 5,
        .embedding = 72,
        .feed_forward = 56,
        .heads = 3,
        .kv_heads = 1,
        .head = 24,
        .rotary = 12,
        .experts = 16,
        .experts_used = 5}},
      {"gemma3-window3",
       "gemma3",
       {.seed = 9, .embedding = 88, .heads = 4, .kv_heads = 1, .head = 22, .rotary = 22, .window = 3}},
      {"gpt-oss-16",
       "gpt-oss",
       {.seed = 11,
        .embedding = 84,
        .feed_forward = 48,
        .heads = 7,
        .kv_heads = 7,
        .head = 12,
        .rotary = 12,
        .experts = 16,
        .experts_used = 3,
        .window = 5}},
      {"granitemoe-5",
       "granitemoe",
       {.seed = 13,
        .embedding = 100,
        .feed_forward = 40,
        .heads = 10,
        .kv_heads = 5,
        .head = 10,
        .rotary = 10,
        .experts = 5,
        .experts_used = 2}},
      {"mamba-odd",
       "mamba",
       {.seed = 15,
        .embedding = 60,
        .ssm = ToySsm{.conv = 3, .inner = 100, .state = 7, .heads = 0, .groups = 0, .rank = 5}}},
      {"mamba2-odd",
       "mamba2",
       {.seed = 17, .embedding = 60, .ssm = ToySsm{.conv = 2, .inner = 90, .state = 5, .heads = 9, .groups = 3}}},
      {"granitehybrid-16",
       "granitehybrid",
       {.seed = 19,
        .embedding = 72,
        .feed_forward = 40,
        .heads = 3,
        .kv_heads = 1,
        .head = 24,
        .rotary = 24,
        .experts = 16,
        .experts_used = 4,
        .ssm = ToySsm{.conv = 5, .inner = 48, .state = 12, .heads = 4, .groups = 1}}},
      {"nemotron_h_moe-16",
       "nemotron_h_moe",
       {.seed = 21,
        .embedding = 88,
        .feed_forward = 24,
        .heads = 2,
        .kv_heads = 1,
        .head = 20,
        .rotary = 20,
        .experts = 16,
        .experts_used = 6,
        .ssm = ToySsm{.conv = 4, .inner = 66, .state = 9, .heads = 6, .groups = 2}}},
      {"nemotron-odd",
       "nemotron",
       {.seed = 25, .embedding = 90, .feed_forward = 110, .heads = 9, .kv_heads = 3, .head = 10, .rotary = 4}},
  };
}

class ToyVariant : public testing::TestWithParam<Variant> {};

TEST_P(ToyVariant, LogitsAreExactAndChunksChangeNoBit) {
  const Variant& variant = GetParam();
  const TempDir folder;
  const auto file = write_toy(variant.toy, folder.path(), variant.options);
  const auto golden = load_f32(test_data(std::string("variants/") + variant.name + ".f32"));
  const auto tokens = golden_tokens();
  constexpr std::array<std::size_t, 8> kRows = {0, 5, 11, 17, 23, 30, 40, 47};
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto at_once = logits_of(file, *named.device, tokens);
    std::vector<float> kept;
    for (const std::size_t row : kRows) {
      const auto from = at_once.begin() + static_cast<std::ptrdiff_t>(row * kGoldenVocabulary);
      kept.insert(kept.end(), from, from + kGoldenVocabulary);
    }
    EXPECT_LE(nmse(kept, golden), named.exact ? 1e-9 : 1e-6);
    EXPECT_EQ(logits_of(file, *named.device, tokens, {.chunk = 7}), at_once) << "chunks of 7";
    EXPECT_EQ(logits_of(file, *named.device, tokens, {.chunk = 1}), at_once) << "by token";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ToyVariant, testing::ValuesIn(variants()), [](const auto& param) {
  std::string name = param.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(EncoderVariant, PooledVectorsAreExact) {
  const TempDir folder;
  const std::array<Variant, 2> encoders = {
      Variant{"bert-odd",
              "bert",
              {.seed = 23, .embedding = 90, .feed_forward = 110, .heads = 9, .kv_heads = 9, .head = 10}},
      Variant{"nomic-bert-odd",
              "nomic-bert",
              {.seed = 27, .embedding = 96, .feed_forward = 72, .heads = 6, .kv_heads = 6, .head = 16, .rotary = 16}}};
  const auto tokens = golden_tokens();
  for (const Variant& variant : encoders) {
    const auto file = write_toy(variant.toy, folder.path(), variant.options);
    const auto golden = load_f32(test_data(std::string("variants/") + variant.name + ".f32"));
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + variant.name);
      Executor executor(GgufFile::open(file), *named.device, {.context = 48, .kv_type = KvType::f32});
      std::vector<float> pooled(golden.size());
      const Want want{.index = static_cast<std::int32_t>(tokens.size()) - 1, .pooled = pooled.data()};
      Sequences texts(executor);
      TestSequence sequence = texts.make();
      texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = {&want, 1}, .pooling = Pooling::mean});
      EXPECT_LE(nmse(pooled, golden), named.exact ? 1e-9 : 1e-6);
    }
  }
}

}  // namespace
}  // namespace quarrel::test
