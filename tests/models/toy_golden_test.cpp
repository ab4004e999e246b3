// Every dense architecture's toy model against exact logits, on every device; and that how a text is fed changes no
// bit.
#include <gtest/gtest.h>

#include "models/runner.h"
#include "support/golden.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

class ToyGolden : public testing::TestWithParam<const char*> {};

TEST_P(ToyGolden, LogitsAreExactAndChunksChangeNoBit) {
  const TempDir folder;
  const auto file = write_toy(GetParam(), folder.path());
  const auto golden = load_f32(test_data(std::string("arch/") + GetParam() + ".f32"));
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    for (const RowClass row_class : {RowClass::prompt, RowClass::generated}) {
      const auto at_once = logits_of(file, *named.device, tokens, {.row_class = row_class});
      const double error = nmse(at_once, golden);
      EXPECT_LE(error, named.exact ? 1e-9 : 1e-6);
      if (row_class == RowClass::prompt) std::printf("%-10s %-12s NMSE %.2e\n", GetParam(), named.name.c_str(), error);
      EXPECT_EQ(logits_of(file, *named.device, tokens, {.chunk = 1, .row_class = row_class}), at_once) << "by token";
      EXPECT_EQ(logits_of(file, *named.device, tokens, {.chunk = 7, .row_class = row_class}), at_once) << "chunks of 7";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, ToyGolden,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "phi3", "gemma3", "granite", "nemotron", "mixtral", "qwen3moe", "granitemoe", "granitehybrid", "granitehybrid-dense", "nemotron_h", "nemotron_h_moe", "gpt-oss", "mamba", "mamba2"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Rows of other sequences in the same step, and the number of threads, must not change a row's bits.
TEST(Batching, NeighboursAndThreadsChangeNoBit) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path(), {.type = QuantType::q4_k, .embedding = 256});
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto alone = logits_of(file, *named.device, tokens, {.kv_type = KvType::f16});
    Executor executor(GgufFile::open(file), *named.device,
                      {.context = 64, .sequences = 3, .batch_rows = 128, .kv_type = KvType::f16});
    const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
    std::vector<float> together(tokens.size() * vocabulary);
    std::vector<Want> wants;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      wants.push_back({.index = static_cast<std::int32_t>(i), .logits = together.data() + i * vocabulary});
    }
    Sequence decoding = executor.make_sequence();
    Sequence other = executor.make_sequence();
    Sequence mine = executor.make_sequence();
    const std::vector<TokenId> more(tokens.rbegin(), tokens.rend());
    executor.run_chunked({.sequence = &decoding, .tokens = std::span(more).first(5)});
    const std::array feeds = {
        Feed{.sequence = &decoding, .tokens = std::span(more).subspan(5, 1), .row_class = RowClass::generated},
        Feed{.sequence = &other, .tokens = std::span(more).first(19)},
        Feed{.sequence = &mine, .tokens = tokens, .wants = wants},
    };
    executor.run(feeds);
    EXPECT_EQ(together, alone);
  }
}

TEST(Batching, TruncatedSequencesContinueAsIfFresh) {
  const TempDir folder;
  const auto file = write_toy("gemma3", folder.path());
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(file), *named.device, {.context = 64, .batch_rows = 64});
    const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
    Sequence sequence = executor.make_sequence();
    std::vector<float> first(vocabulary);
    std::vector<float> again(vocabulary);
    const Want want_first{.index = 9, .logits = first.data()};
    const Want want_again{.index = 9, .logits = again.data()};
    executor.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).first(20)});
    executor.run_chunked(
        {.sequence = &sequence, .tokens = std::span(tokens).subspan(20, 10), .wants = {&want_first, 1}});
    executor.truncate(sequence, 20);
    executor.run_chunked(
        {.sequence = &sequence, .tokens = std::span(tokens).subspan(20, 10), .wants = {&want_again, 1}});
    EXPECT_EQ(first, again);
    EXPECT_EQ(sequence.length(), 30);
  }
}

}  // namespace
}  // namespace quarrel::test
