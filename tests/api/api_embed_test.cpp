// Vectors through the public header, compared with those of the layer below.
#include <cmath>
#include <numeric>
#include <thread>

#include "api/api_support.h"
#include "backend/create.h"
#include "base/log.h"
#include "session/embedding.h"
#include "support/rewritten_toy.h"

namespace quarrel::test {
namespace {

double length(const std::vector<float>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

class ApiEmbedding : public testing::Test {
 protected:
  const TempDir folder_;
  const std::string file_ = write_toy_embed(folder_.path()).string();
  const api::Model model_ = api::Model::load(file_, small_load());
  const std::vector<std::string> texts_{"the long search query", "a fox", "dog and fox"};
};

TEST_F(ApiEmbedding, GivesTheVectorsOfTheLayerBelow) {
  const auto embeddings = model_.embed(texts_);
  MemoryLog log;
  const auto below = LoadedModel::load(file_, make_device({.threads = 1}), {}, log);
  const auto expected = embed(below, texts_);
  ASSERT_EQ(embeddings.size(), texts_.size());
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    EXPECT_EQ(embeddings[i].values, expected[i].values);
    EXPECT_EQ(embeddings[i].values.size(), static_cast<std::size_t>(model_.info().embedding_width));
    EXPECT_EQ(embeddings[i].tokens, model_.tokenize(texts_[i], true).size());
    EXPECT_NEAR(length(embeddings[i].values), 1.0, 1e-5);
  }
  EXPECT_TRUE(model_.embed(std::vector<std::string>{}).empty());
  EXPECT_FALSE(model_.info().generates);
  expect_api_error(api::ErrorKind::unsupported, "cannot generate text", [&] { model_.generate("a fox"); });
}

TEST_F(ApiEmbedding, TokensWillDo) {
  std::vector<std::vector<api::Token>> lists;
  for (const std::string& text : texts_) lists.push_back(model_.tokenize(text, true));
  const auto by_text = model_.embed(texts_);
  const auto by_token = model_.embed(lists);
  ASSERT_EQ(by_token.size(), by_text.size());
  for (std::size_t i = 0; i < by_text.size(); ++i) EXPECT_EQ(by_token[i].values, by_text[i].values);
  expect_api_error(api::ErrorKind::bad_input, "text 2",
                   [&] { model_.embed(std::vector<std::vector<api::Token>>{{5, 6}, {5, 1 << 20}}); });
  expect_api_error(api::ErrorKind::bad_input, "limit",
                   [&] { model_.embed(std::vector<std::vector<api::Token>>{std::vector<api::Token>(100000, 5)}); });
}

TEST_F(ApiEmbedding, PoolingNormAndDimensions) {
  const auto plain = model_.embed(texts_, {.normalize = false});
  EXPECT_GT(std::abs(length(plain[0].values) - 1.0), 1e-3);
  const auto cut = model_.embed(texts_, {.dimensions = 8});
  ASSERT_EQ(cut[0].values.size(), 8u);
  EXPECT_NEAR(length(cut[0].values), 1.0, 1e-5);
  EXPECT_NEAR(cut[0].values[3] / cut[0].values[2], plain[0].values[3] / plain[0].values[2], 1e-4f);
  const auto first = model_.embed(texts_, {.pooling = api::Pooling::cls, .normalize = false});
  EXPECT_NE(first[0].values, plain[0].values);
  const auto rows = model_.embed(texts_, {.pooling = api::Pooling::none, .normalize = false});
  ASSERT_EQ(rows[0].token_vectors.size(), rows[0].tokens);
  EXPECT_TRUE(rows[0].values.empty());
  for (std::size_t i = 0; i < first[0].values.size(); ++i) {
    EXPECT_NEAR(rows[0].token_vectors[0][i], first[0].values[i], 1e-5f);
  }
  expect_api_error(api::ErrorKind::usage, "dimensions", [&] { model_.embed(texts_, {.dimensions = 100000}); });
  expect_api_error(api::ErrorKind::unsupported, "rank", [&] { model_.embed(texts_, {.pooling = api::Pooling::rank}); });
}

TEST_F(ApiEmbedding, CanBeEndedOnTheWay) {
  const std::vector<std::string> many(500, texts_[0]);
  api::EmbedOptions options;
  options.cancel = api::CancelToken();
  options.cancel->cancel();
  expect_api_error(api::ErrorKind::cancelled, "", [&] { model_.embed(many, options); });
  options.cancel.reset();
  options.progress = [](std::size_t, std::size_t) { return false; };
  expect_api_error(api::ErrorKind::cancelled, "", [&] { model_.embed(many, options); });
  options.progress = [](std::size_t, std::size_t) -> bool { throw std::out_of_range("mine"); };
  EXPECT_THROW(model_.embed(many, options), std::out_of_range);
  std::size_t last = 0;
  options.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(total, many.size());
    EXPECT_GE(done, last);
    last = done;
    return true;
  };
  EXPECT_EQ(model_.embed(many, options).size(), many.size());
  EXPECT_EQ(last, many.size());
}

TEST_F(ApiEmbedding, RowsOfTheTable) {
  const std::vector<api::Token> tokens = model_.tokenize("a fox");
  const auto rows = model_.embedding_rows(tokens);
  ASSERT_EQ(rows.size(), tokens.size());
  EXPECT_EQ(model_.embedding_rows("a fox"), rows);
  MemoryLog log;
  const auto below = LoadedModel::load(file_, make_device({.threads = 1}), {}, log);
  EXPECT_EQ(rows, embedding_rows(*below, tokens));
  expect_api_error(api::ErrorKind::bad_input, "", [&] { model_.embedding_rows(std::vector<api::Token>{1 << 20}); });
}

TEST(ApiRanking, GivesScores) {
  const TempDir folder;
  ToyRewriter toy("bert", {});
  std::vector<float> weights(std::size_t{2} * 128);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  const std::vector<float> bias{0.25f, -3.0f};
  toy.change = [&](const ToyTensor& tensor, ToyRewriter& rewriter) {
    rewriter.keep(tensor);
    if (tensor.name != "token_embd.weight") return;
    rewriter.add("cls.output.weight", {128, 2}, weights);
    rewriter.add("cls.output.bias", {2}, bias);
  };
  api::LoadOptions load = small_load();
  load.pooling = api::Pooling::rank;
  const api::Model model = api::Model::load(toy.write(folder.path() / "rank.gguf").string(), load);
  EXPECT_TRUE(model.info().ranks);
  EXPECT_EQ(model.info().pooling, api::Pooling::rank);
  EXPECT_EQ(model.info().embedding_width, 2);
  const std::vector<std::vector<api::Token>> texts{{3, 5, 7, 9}, {3}};
  const auto scores = model.embed(texts);
  const auto rows = model.embed(texts, {.pooling = api::Pooling::none, .normalize = false});
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const std::vector<float>& row = rows[text].token_vectors.front();
    ASSERT_EQ(scores[text].values.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(i * 128);
      const double expected = std::inner_product(row.begin(), row.end(), begin, static_cast<double>(bias[i]));
      EXPECT_NEAR(static_cast<double>(scores[text].values[i]), expected, 1e-3);
    }
  }
}

// One model, loaded once, does both, also at the same time.
TEST(ApiDecoder, GeneratesAndEmbeds) {
  const TempDir folder;
  const api::Model model = api::Model::load(write_toy_chat(folder.path(), {.context = 512}).string(), small_load());
  EXPECT_TRUE(model.info().generates);
  EXPECT_TRUE(model.info().embeds);
  const std::vector<std::string> texts{"Hello world", "what is"};
  const auto alone = model.embed(texts);
  EXPECT_NEAR(length(alone[0].values), 1.0, 1e-5);
  const std::vector<api::Token> answer = model.generate(kPrompt, unending(100)).tokens;
  api::Generation generation = model.open(kPrompt, unending(100));
  for (int round = 0; round < 5; ++round) {
    const auto beside = model.embed(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(beside[i].values, alone[i].values);
  }
  EXPECT_EQ(generation.wait().front().tokens, answer);
}

}  // namespace
}  // namespace quarrel::test
