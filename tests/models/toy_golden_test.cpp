// Every architecture's toy model against exact logits, on every device; and that how a text is fed changes no
// bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/runner.h"
#include "support/golden.h"
#include "support/sanitized.h"
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
      for (const std::int32_t chunk : {1, 7}) {
        if (kSanitized && (chunk == 1) != (row_class == RowClass::generated)) continue;
        EXPECT_EQ(logits_of(file, *named.device, tokens, {.chunk = chunk, .row_class = row_class}), at_once)
            << "chunks of " << chunk;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, ToyGolden,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "phi3", "gemma3", "granite", "nemotron",
                                         "mixtral", "qwen3moe", "granitemoe", "granitehybrid", "granitehybrid-dense",
                                         "nemotron_h", "nemotron_h_moe", "gpt-oss", "mamba", "mamba2"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class ToyEncoder : public testing::TestWithParam<const char*> {};

TEST_P(ToyEncoder, PooledVectorIsExactWhateverElseIsInTheStep) {
  const TempDir folder;
  const auto file = write_toy(GetParam(), folder.path());
  const auto golden = load_f32(test_data(std::string("arch/") + GetParam() + ".f32"));
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Executor executor(GgufFile::open(file), *named.device,
                      {.context = 64, .sequences = 3, .batch_rows = 128, .kv_type = KvType::f32});
    std::vector<float> alone(golden.size());
    std::vector<float> together(golden.size());
    const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
    const Want want_alone{.index = last, .pooled = alone.data()};
    const Want want_together{.index = last, .pooled = together.data()};
    Sequences texts(executor);
    TestSequence first = texts.make();
    texts.run_chunked({.sequence = &first, .tokens = tokens, .wants = {&want_alone, 1}, .pooling = Pooling::mean});
    const double error = nmse(alone, golden);
    EXPECT_LE(error, named.exact ? 1e-9 : 1e-6);
    std::printf("%-10s %-12s NMSE %.2e\n", GetParam(), named.name.c_str(), error);
    texts.truncate(first, 0);
    TestSequence second = texts.make();
    const std::array feeds = {
        Feed{.sequence = &second, .tokens = std::span(tokens).first(17)},
        Feed{.sequence = &first, .tokens = tokens, .wants = {&want_together, 1}, .pooling = Pooling::mean},
    };
    texts.run(feeds);
    EXPECT_EQ(alone, together);
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, ToyEncoder, testing::Values("bert", "nomic-bert"),
                         [](const auto& param) { return std::string(param.index == 0 ? "bert" : "nomic_bert"); });

// Rows of other sequences in the same step, and the number of threads, must not change a row's bits.
TEST(Batching, NeighboursAndThreadsChangeNoBit) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path(), {.type = QuantType::q4_k, .embedding = 256});
  const auto tokens = golden_tokens();
  const auto expect_same = [&](const NamedDevice& named, ActivationPrecision activations) {
    SCOPED_TRACE(named.name);
    const auto alone = logits_of(file, *named.device, tokens, {.kv_type = KvType::f16, .activations = activations});
    Executor executor(
        GgufFile::open(file), *named.device,
        {.context = 64, .sequences = 3, .batch_rows = 128, .kv_type = KvType::f16, .activations = activations});
    const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
    std::vector<float> together(tokens.size() * vocabulary);
    std::vector<Want> wants;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      wants.push_back({.index = static_cast<std::int32_t>(i), .logits = together.data() + i * vocabulary});
    }
    Sequences texts(executor);
    TestSequence decoding = texts.make();
    TestSequence other = texts.make();
    TestSequence mine = texts.make();
    const std::vector<TokenId> more(tokens.rbegin(), tokens.rend());
    texts.run_chunked({.sequence = &decoding, .tokens = std::span(more).first(5)});
    const std::array feeds = {
        Feed{.sequence = &decoding, .tokens = std::span(more).subspan(5, 1), .row_class = RowClass::generated},
        Feed{.sequence = &other, .tokens = std::span(more).first(19)},
        Feed{.sequence = &mine, .tokens = tokens, .wants = wants},
    };
    texts.run(feeds);
    EXPECT_EQ(together, alone);
  };
  for (const NamedDevice& named : all_devices()) {
    for (const ActivationPrecision activations :
         {ActivationPrecision::outlier_groups, ActivationPrecision::int8_split, ActivationPrecision::int8}) {
      expect_same(named, activations);
    }
  }
}

// Going back: attention can at any place, a window that moved on and a recurrent state only to the start. Whatever is
// kept, continuing from there gives the bits of a text that never went further.
TEST(Batching, TruncatedSequencesContinueAsIfFresh) {
  struct Case {
    const char* toy;
    std::int32_t kept;
  };
  const TempDir folder;
  const auto tokens = golden_tokens();
  for (const Case& c : {Case{"llama", 20}, Case{"gemma3", 0}, Case{"mamba2", 0}, Case{"nemotron_h", 0}}) {
    const auto file = write_toy(c.toy, folder.path());
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + c.toy);
      const auto fresh = logits_of(file, *named.device, std::span(tokens).first(30), {.kv_type = KvType::f32});
      Executor executor(GgufFile::open(file), *named.device, {.context = 64, .batch_rows = 64, .kv_type = KvType::f32});
      const auto vocabulary = static_cast<std::size_t>(executor.spec().vocabulary);
      Sequences texts(executor);
      TestSequence sequence = texts.make();
      texts.run_chunked({.sequence = &sequence, .tokens = std::span(tokens).first(35)});
      EXPECT_EQ(texts.truncate(sequence, 20), c.kept);
      EXPECT_EQ(sequence.length(), c.kept);
      std::vector<float> last(vocabulary);
      const auto rest = std::span(tokens).first(30).subspan(static_cast<std::size_t>(c.kept));
      const Want want{.index = static_cast<std::int32_t>(rest.size()) - 1, .logits = last.data()};
      texts.run_chunked({.sequence = &sequence, .tokens = rest, .wants = {&want, 1}});
      EXPECT_TRUE(std::ranges::equal(last, std::span(fresh).last(vocabulary)));
    }
  }
}

// A window's group holds blocks for the window and one step, not for the context; they must suffice for ever.
TEST(Windows, FreeWhatTheyHavePassed) {
  const TempDir folder;
  const auto file = write_toy("gpt-oss", folder.path());
  const auto tokens = golden_tokens(400);
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto at_once = logits_of(file, *named.device, tokens, {.kv_type = KvType::f32});
    Executor executor(GgufFile::open(file), *named.device, {.context = 400, .batch_rows = 16, .kv_type = KvType::f32});
    ASSERT_EQ(executor.plan().blocks.size(), 2u);
    EXPECT_EQ(std::ranges::max(executor.plan().blocks), 25);
    EXPECT_LE(std::ranges::min(executor.plan().blocks), 4);
    Sequences texts(executor);
    TestSequence sequence = texts.make();
    std::vector<float> last(static_cast<std::size_t>(executor.spec().vocabulary));
    const Want want{.index = 399, .logits = last.data()};
    texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = {&want, 1}});
    EXPECT_TRUE(std::ranges::equal(last, std::span(at_once).last(last.size())));
    texts.truncate(sequence, 0);
    texts.run_chunked({.sequence = &sequence, .tokens = tokens, .wants = {&want, 1}}, 5);
    EXPECT_TRUE(std::ranges::equal(last, std::span(at_once).last(last.size())));
  }
}

}  // namespace
}  // namespace quarrel::test
