// Texts to vectors, on every device: the recorded vectors of the encoders, pooling checked by hand, and that no text's
// vector depends on what is embedded beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "models/embedder.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/rewritten_toy.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

using Texts = std::vector<std::vector<TokenId>>;

Embedder make_embedder(const std::filesystem::path& file, Device& device, const EmbedOptions& options) {
  MemoryLog log;
  return Embedder(file, device, options, log);
}

// Exact arithmetic, vectors as the model gives them.
EmbedOptions plain(std::optional<Pooling> pooling = {}, std::int32_t batch_rows = 512) {
  return {.executor = {.batch_rows = batch_rows, .kv_type = KvType::f32, .pooling = pooling}, .normalize = false};
}

Texts texts_of_lengths(std::initializer_list<std::size_t> lengths) {
  const auto tokens = golden_tokens(600);
  Texts texts;
  texts.reserve(lengths.size());
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin % 40);
    texts.emplace_back(first, first + static_cast<std::ptrdiff_t>(length));
    begin += 7;
  }
  return texts;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

void expect_error(ErrorKind kind, std::string_view words, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "no error with: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(words), std::string_view::npos) << error.what();
  }
}

// More texts than a step takes, of many lengths: what they give together is what each gives alone, bit for bit.
std::vector<Embedding> expect_alone_as_together(const Embedder& embedder, const Texts& texts) {
  auto together = embedder.embed(texts);
  EXPECT_EQ(together.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(together[i].tokens, texts[i].size());
    EXPECT_FALSE(together[i].cut);
    EXPECT_EQ(embedder.embed(Texts{texts[i]}).front().values, together[i].values) << "text " << i;
  }
  return together;
}

class EmbedEncoders : public testing::TestWithParam<const char*> {};

TEST_P(EmbedEncoders, GiveTheRecordedVectorWhateverElseIsEmbedded) {
  const TempDir folder;
  const auto file = write_toy(GetParam(), folder.path());
  const auto golden = load_f32(test_data(std::string("arch/") + GetParam() + ".f32"));
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Embedder embedder = make_embedder(file, *named.device, plain());
    EXPECT_EQ(embedder.model().pooling(), Pooling::mean);
    EXPECT_EQ(embedder.model().tokenizer(), nullptr);
    Texts texts = texts_of_lengths({17, 1, 200, 64, 16, 33, 2, 5, 150, 80, 80, 9, 31});
    texts.insert(texts.begin() + 3, golden_tokens());
    const auto results = expect_alone_as_together(embedder, texts);
    EXPECT_LE(nmse(results[3].values, golden), named.exact ? 1e-9 : 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Toys, EmbedEncoders, testing::Values("bert", "nomic-bert"),
                         [](const auto& param) { return std::string(param.index == 0 ? "bert" : "nomic_bert"); });

// Steps of 24 rows: texts longer than that go in chunks, shorter ones share a step.
TEST(EmbedDecoders, PoolInChunksWhatTokenVectorsSay) {
  const TempDir folder;
  const Texts texts = texts_of_lengths({60, 3, 24, 25, 12, 1, 48, 11, 11});
  for (const char* toy : {"gemma3", "llama"}) {
    if (kSanitized && toy == std::string_view("llama")) break;
    const auto file = write_toy(toy, folder.path());
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + " " + toy);
      Embedder by_token = make_embedder(file, *named.device, plain(Pooling::none));
      std::vector<std::vector<std::vector<float>>> rows;
      rows.reserve(texts.size());
      for (const auto& text : texts) rows.push_back(by_token.token_vectors(text));
      for (const Pooling pooling : {Pooling::mean, Pooling::last, Pooling::cls}) {
        Embedder embedder = make_embedder(file, *named.device, plain(pooling, 24));
        ASSERT_EQ(embedder.model().executor().batch_rows(), 24);
        const auto pooled = expect_alone_as_together(embedder, texts);
        for (std::size_t i = 0; i < texts.size(); ++i) {
          ASSERT_EQ(rows[i].size(), texts[i].size());
          if (pooling == Pooling::last) {
            EXPECT_EQ(pooled[i].values, rows[i].back());
          }
          if (pooling == Pooling::cls) {
            EXPECT_EQ(pooled[i].values, rows[i].front());
          }
          if (pooling != Pooling::mean) continue;
          std::vector<float> mean(rows[i].front().size());
          for (std::size_t column = 0; column < mean.size(); ++column) {
            double sum = 0;
            for (const auto& row : rows[i]) sum += static_cast<double>(row[column]);
            mean[column] = static_cast<float>(sum / static_cast<double>(rows[i].size()));
          }
          EXPECT_LE(nmse(pooled[i].values, mean), 1e-13);
        }
      }
    }
  }
}

// What a token's vector is: the row after the output norm, which the head would multiply.
TEST(EmbedDecoders, TokenVectorsAreWhatTheHeadSees) {
  const TempDir folder;
  const auto file = write_toy("llama", folder.path());
  const auto tokens = golden_tokens();
  ToyRewriter toy("llama", {});
  const std::vector<float>& head = toy.tensor("output.weight").values;
  const auto golden = load_f32(test_data("arch/llama.f32"));
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Embedder embedder = make_embedder(file, *named.device, plain(Pooling::none));
    const auto vectors = embedder.token_vectors(tokens);
    std::vector<float> logits;
    logits.reserve(golden.size());
    for (const auto& vector : vectors) {
      for (std::size_t id = 0; id < kGoldenVocabulary; ++id) {
        double sum = 0;
        for (std::size_t i = 0; i < vector.size(); ++i) {
          sum += static_cast<double>(head[id * vector.size() + i]) * static_cast<double>(vector[i]);
        }
        logits.push_back(static_cast<float>(sum));
      }
    }
    EXPECT_LE(nmse(logits, golden), named.exact ? 1e-9 : 1e-6);
  }
}

TEST(EmbedDecoders, DefaultToTheLastRowAndToWhatTheFileSays) {
  const TempDir folder;
  const auto device = std::move(all_devices().front().device);
  EXPECT_EQ(make_embedder(write_toy("llama", folder.path()), *device, {}).model().pooling(), Pooling::last);
  ToyRewriter toy("llama", {});
  toy.put = [](GgufWriter& writer) { writer.put_u32("llama.pooling_type", 1); };
  const auto file = toy.write(folder.path() / "mean.gguf");
  EXPECT_EQ(make_embedder(file, *device, {}).model().pooling(), Pooling::mean);
  EXPECT_EQ(make_embedder(file, *device, plain(Pooling::cls)).model().pooling(), Pooling::cls);
}

// Recurrent models have a slot a sequence instead of blocks.
TEST(EmbedDecoders, RecurrentTextsShareSteps) {
  const TempDir folder;
  const auto reference = std::move(all_devices().front().device);
  for (const char* toy : {"mamba2", "granitehybrid-dense"}) {
    SCOPED_TRACE(toy);
    EmbedOptions options = plain(Pooling::mean, 40);
    options.executor.sequences = 2;
    Embedder embedder = make_embedder(write_toy(toy, folder.path()), *reference, options);
    expect_alone_as_together(embedder, texts_of_lengths({5, 6, 7, 3, 50, 1, 9, 4, 4}));
  }
}

TEST(EmbedVectors, AreNormalisedAndCutToDimensions) {
  const TempDir folder;
  const auto file = write_toy("bert", folder.path());
  const Texts texts = texts_of_lengths({12, 30});
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto raw = make_embedder(file, *named.device, plain()).embed(texts);
    EmbedOptions options = plain();
    options.normalize = true;
    const auto whole = make_embedder(file, *named.device, options).embed(texts);
    options.dimensions = 20;
    Embedder small = make_embedder(file, *named.device, options);
    EXPECT_EQ(vector_width(small.model(), {.dimensions = 20}), 20);
    const auto cut = small.embed(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(whole[i].values.size(), 128u);
      ASSERT_EQ(cut[i].values.size(), 20u);
      EXPECT_NEAR(norm_of(whole[i].values), 1.0, 1e-6);
      EXPECT_NEAR(norm_of(cut[i].values), 1.0, 1e-6);
      const double length = norm_of(raw[i].values);
      const double short_length = norm_of(std::span(raw[i].values).first(20));
      EXPECT_NE(length, 1.0);
      for (std::size_t k = 0; k < 128; ++k) {
        const auto value = static_cast<double>(raw[i].values[k]);
        EXPECT_FLOAT_EQ(whole[i].values[k], static_cast<float>(value / length));
        if (k < 20) {
          EXPECT_FLOAT_EQ(cut[i].values[k], static_cast<float>(value / short_length));
        }
      }
    }
  }
  const auto device = std::move(all_devices().front().device);
  EmbedOptions options;
  for (const std::int32_t wrong : {0, -1, 129}) {
    options.dimensions = wrong;
    expect_error(ErrorKind::usage, "dimensions", [&] { make_embedder(file, *device, options); });
  }
}

// Norms with weights and biases of zero give rows of zeros, which have no direction.
TEST(EmbedVectors, OfZerosStayZero) {
  const TempDir folder;
  ToyRewriter toy("bert", {});
  toy.change = [](const ToyTensor& tensor, ToyRewriter& rewriter) {
    const bool last = tensor.name.starts_with("blk.2.layer_output_norm");
    if (last) {
      rewriter.add(tensor.name, tensor.shape, std::vector<float>(tensor.values.size(), 0.0f));
    } else {
      rewriter.keep(tensor);
    }
  };
  const auto file = toy.write(folder.path() / "zero.gguf");
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const Texts texts = texts_of_lengths({5});
    EXPECT_EQ(make_embedder(file, *named.device, {}).embed(texts).front().values, std::vector<float>(128, 0.0f));
  }
}

// Scores from the first row, with and without the dense layer between, by hand from the vectors of the tokens.
TEST(EmbedRanking, GivesScores) {
  const TempDir folder;
  const Texts texts = texts_of_lengths({12, 30, 1});
  for (const bool dense : {false, true}) {
    ToyRewriter toy("bert", {});
    std::vector<float> score(std::size_t{2} * 128);
    std::vector<float> square(std::size_t{128} * 128);
    for (std::size_t i = 0; i < score.size(); ++i) score[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    for (std::size_t i = 0; i < square.size(); ++i) {
      square[i] = static_cast<float>(0.1 * std::cos(static_cast<double>(i)));
    }
    const std::vector<float> bias{0.25f, -3.0f};
    toy.change = [&](const ToyTensor& tensor, ToyRewriter& rewriter) {
      rewriter.keep(tensor);
      if (tensor.name != "token_embd.weight") return;
      rewriter.add("cls.output.weight", {128, 2}, score);
      rewriter.add("cls.output.bias", {2}, bias);
      if (dense) rewriter.add("cls.weight", {128, 128}, square);
    };
    const auto file = toy.write(folder.path() / "rank.gguf");
    for (const NamedDevice& named : all_devices()) {
      SCOPED_TRACE(named.name + (dense ? " dense" : ""));
      EmbedOptions options = plain(Pooling::rank);
      options.normalize = true;  // which scores must not follow
      Embedder embedder = make_embedder(file, *named.device, options);
      EXPECT_EQ(vector_width(embedder.model(), {}), 2);
      const auto results = embedder.embed(texts);
      Embedder by_token = make_embedder(file, *named.device, plain(Pooling::none));
      for (std::size_t t = 0; t < texts.size(); ++t) {
        std::vector<float> row = by_token.token_vectors(texts[t]).front();
        if (dense) {
          const std::vector<float> in = row;
          for (std::size_t o = 0; o < row.size(); ++o) {
            row[o] = static_cast<float>(std::tanh(
                std::inner_product(in.begin(), in.end(), square.begin() + static_cast<std::ptrdiff_t>(o * 128), 0.0)));
          }
        }
        ASSERT_EQ(results[t].values.size(), 2u);
        for (std::size_t o = 0; o < 2; ++o) {
          const double expected =
              std::inner_product(row.begin(), row.end(), score.begin() + static_cast<std::ptrdiff_t>(o * 128), 0.0);
          EXPECT_NEAR(static_cast<double>(results[t].values[o]), expected + static_cast<double>(bias[o]), 1e-4);
        }
      }
      options.dimensions = 1;
      expect_error(ErrorKind::usage, "scores", [&] { make_embedder(file, *named.device, options); });
    }
  }
  const auto device = std::move(all_devices().front().device);
  expect_error(ErrorKind::bad_file, "cls.output.weight",
               [&] { make_embedder(write_toy("bert", folder.path()), *device, plain(Pooling::rank)); });
}

TEST(EmbedTokenRows, AreThoseOfTheTable) {
  const TempDir folder;
  const auto device = std::move(all_devices().front().device);
  for (const QuantType type : {QuantType::f32, QuantType::q8_0, QuantType::q4_k}) {
    const ToyOptions options{.type = type, .embedding = 256};
    Embedder embedder = make_embedder(write_toy("granite", folder.path(), options), *device, {});
    ToyRewriter toy("granite", options);
    const std::vector<float>& table = toy.tensor("token_embd.weight").values;
    const std::vector<TokenId> ids{0, 319, 5, 5};
    const auto rows = embedding_rows(embedder.model(), ids);
    ASSERT_EQ(rows.size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto expected = std::span(table).subspan(static_cast<std::size_t>(ids[i]) * 256, 256);
      EXPECT_TRUE(std::ranges::equal(rows[i], expected));
    }
    for (const TokenId wrong : {-1, 320}) {
      const std::vector<TokenId> bad{1, wrong};
      expect_error(ErrorKind::bad_input, "vocabulary", [&] { embedding_rows(embedder.model(), bad); });
    }
  }
}

TEST(EmbedStrings, GetTheirSpecialTokensAndAreCutToTheLimit) {
  const TempDir folder;
  const auto file = write_toy_embed(folder.path(), {.context = 8});
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Embedder embedder = make_embedder(file, *named.device, {});
    ASSERT_NE(embedder.model().tokenizer(), nullptr);
    const TokenId cls = embedder.model().tokenizer()->special().cls.value_or(-1);
    const TokenId separator = embedder.model().tokenizer()->special().separator.value_or(-1);
    const std::vector<std::string> texts{"The fox", "", "a b c d e f", "a b c d e f g", "[CLS] no"};
    const auto results = embedder.embed(texts);
    ASSERT_EQ(results.size(), texts.size());
    EXPECT_EQ(results[0].tokens, 4u);
    EXPECT_EQ(results[1].tokens, 2u);
    EXPECT_EQ(results[2].tokens, 8u);
    EXPECT_FALSE(results[2].cut);
    EXPECT_EQ(results[3].tokens, 8u);
    EXPECT_TRUE(results[3].cut);
    EXPECT_EQ(results[3].full_tokens, 9u);
    EXPECT_EQ(results[3].values, results[2].values);  // the text is cut, the closing token is not
    const auto encoded = encode_text(embedder.model(), texts[3]);
    EXPECT_EQ(encoded.tokens.front(), cls);
    EXPECT_EQ(encoded.tokens.back(), separator);
    // What a user writes never becomes a control token.
    EXPECT_EQ(std::ranges::count(encode_text(embedder.model(), texts[4]).tokens, cls), 1);
  }
}

TEST(EmbedMistakes, NameTheTextAndLeaveTheEmbedderUsable) {
  const TempDir folder;
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    Embedder embedder =
        make_embedder(write_toy("llama", folder.path(), {.context = 64}), *named.device, plain(Pooling::mean, 32));
    const Texts good = texts_of_lengths({10, 64});
    const auto before = embedder.embed(good);
    Texts texts = good;
    texts.push_back({});
    expect_error(ErrorKind::bad_input, "text 3 has no tokens", [&] { embedder.embed(texts); });
    texts.back() = golden_tokens(65);
    expect_error(ErrorKind::bad_input, "text 3 has 65 tokens", [&] { embedder.embed(texts); });
    texts.back() = {1, 320};
    expect_error(ErrorKind::bad_input, "320", [&] { embedder.embed(texts); });
    const std::vector<std::string> words{"hello"};
    expect_error(ErrorKind::unsupported, "vocabulary", [&] { embedder.embed(words); });
    // Cancelled on the way: nothing may be left behind.
    for (int round = 0; round < 3; ++round) {
      expect_error(ErrorKind::cancelled, "cancelled",
                   [&] { embedder.embed(good, [](std::size_t, std::size_t) { return false; }); });
    }
    std::size_t reported = 0;
    const auto after = embedder.embed(good, [&](std::size_t done, std::size_t total) {
      EXPECT_EQ(total, 2u);
      EXPECT_GE(done, reported);
      reported = done;
      return true;
    });
    EXPECT_EQ(reported, 2u);
    EXPECT_EQ(after[0].values, before[0].values);
    EXPECT_EQ(after[1].values, before[1].values);

    EXPECT_TRUE(embedder.embed(Texts{}).empty());
  }
}

}  // namespace
}  // namespace quarrel::test
