// Texts to vectors through the engine: the same bits however many there are, in the caller's order.
#include "session/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "session/session_support.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

class Embed : public testing::Test {
 protected:
  std::shared_ptr<LoadedModel> encoder(LoadOptions options = {}) {
    return load_toy(write_toy_embed(folder_.path()), std::move(options));
  }
  std::shared_ptr<LoadedModel> decoder() { return load_toy(write_toy_chat(folder_.path(), {.context = 256})); }
  static std::vector<std::string> texts(std::size_t count) {
    std::vector<std::string> made;
    for (std::size_t i = 0; i < count; ++i)
      made.push_back("the text " + std::string(i % 13 * 3, 'a') + std::to_string(i));
    return made;
  }
  static double length(const std::vector<float>& values) {
    double squares = 0.0;
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(squares);
  }

  TempDir folder_;
};

TEST_F(Embed, ManyAreEachAsAlone) {
  for (const auto& model : {encoder(), decoder()}) {
    const std::vector<std::string> all = texts(100);
    const std::vector<Embedding> together = embed(model, all);
    ASSERT_EQ(together.size(), all.size());
    for (std::size_t i = 0; i < all.size(); i += 9) {
      const Embedding alone = embed(model, std::vector<std::string>{all[i]}).at(0);
      EXPECT_EQ(alone.values, together[i].values) << i;
      EXPECT_EQ(alone.tokens, encode_text(*model, all[i]).tokens.size());
      EXPECT_NEAR(length(alone.values), 1.0, 1e-5);
    }
    EXPECT_NE(together[0].values, together[1].values);
  }
}

TEST_F(Embed, OneModelGeneratesAndEmbeds) {
  const auto model = decoder();
  Ask ask{.prompt = std::string("Hello"), .seed = 1, .max_tokens = 60};
  ask.stop_tokens.emplace();
  const auto alone = generate(model, ask).answers[0].tokens;
  GenerationStream stream(model, ask);
  const std::vector<Embedding> vectors = embed(model, texts(20));
  EXPECT_EQ(vectors.size(), 20u);
  GenerationResult result;
  while (auto event = stream.next()) result.add(*event);
  EXPECT_EQ(result.answers.at(0).tokens, alone);
}

TEST_F(Embed, OptionsChangeTheVectors) {
  const auto model = decoder();
  const std::vector<std::string> one = {"some words"};
  const std::vector<float> raw = embed(model, one, {.normalize = false}).at(0).values;
  const std::vector<float> unit = embed(model, one).at(0).values;
  ASSERT_EQ(raw.size(), unit.size());
  for (std::size_t i = 0; i < raw.size(); ++i) EXPECT_NEAR(raw[i] / length(raw), unit[i], 1e-6);
  const std::vector<float> few = embed(model, one, {.normalize = false, .dimensions = 8}).at(0).values;
  EXPECT_EQ(few, std::vector<float>(raw.begin(), raw.begin() + 8));
  EXPECT_NEAR(length(embed(model, one, {.dimensions = 8}).at(0).values), 1.0, 1e-5);
  EXPECT_NE(embed(model, one, {.pooling = Pooling::mean}).at(0).values, unit);

  const Embedding rows = embed(model, one, {.pooling = Pooling::none, .normalize = false}).at(0);
  ASSERT_EQ(rows.token_vectors.size(), rows.tokens);
  EXPECT_EQ(rows.token_vectors.back(), raw);  // a decoder's vector is its last row
  EXPECT_TRUE(rows.values.empty());
}

TEST_F(Embed, LongTextsAreCutAndKeepTheirEnd) {
  const auto model = encoder();
  const std::size_t limit = longest_embedded_text(*model);
  const std::string text(4 * limit, 'a');
  std::string words;
  for (std::size_t i = 0; i < limit; ++i) words += "a ";
  const EncodedText encoded = encode_text(*model, words);
  EXPECT_TRUE(encoded.cut);
  EXPECT_EQ(encoded.tokens.size(), limit);
  EXPECT_GT(encoded.full_tokens, limit);
  EXPECT_EQ(encoded.tokens.back(), *model->tokenizer()->special().eos);
  // Of ids, too, those that have one.
  std::vector<TokenId> ids(2 * limit, 5);
  EXPECT_EQ(fit_text(*model, ids).tokens, std::vector<TokenId>(limit, 5));
  ids.back() = *model->tokenizer()->special().eos;
  EXPECT_EQ(fit_text(*model, ids).tokens.back(), ids.back());
  const Embedding embedding = embed(model, std::vector<std::string>{words}).at(0);
  EXPECT_TRUE(embedding.cut);
  EXPECT_EQ(embedding.full_tokens, encoded.full_tokens);
  expect_error(ErrorKind::bad_input, {"text 2", std::to_string(limit + 1), std::to_string(limit)},
               [&] { embed(model, {std::vector<TokenId>{5}, std::vector<TokenId>(limit + 1, 5)}); });
}

TEST_F(Embed, MistakesAreRefused) {
  const auto model = encoder();
  expect_error(ErrorKind::bad_input, {"text 1", "no tokens"}, [&] { embed(model, {std::vector<TokenId>{}}); });
  expect_error(ErrorKind::bad_input, {"text 1", "1000000"}, [&] { embed(model, {std::vector<TokenId>{1'000'000}}); });
  expect_error(ErrorKind::usage, {"dimensions"}, [&] { vector_width(*model, {.dimensions = 100'000}); });
  expect_error(ErrorKind::unsupported, {"ranks"}, [&] { vector_width(*model, {.pooling = Pooling::rank}); });
  EXPECT_TRUE(embed(model, std::vector<std::vector<TokenId>>{}).empty());
}

TEST_F(Embed, IsToldAndCancelled) {
  const auto model = encoder();
  std::size_t last = 0;
  embed(model, texts(50), {}, [&](std::size_t done, std::size_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, 50u);
    last = done;
    return true;
  });
  EXPECT_EQ(last, 50u);

  model->engine().pause();
  std::atomic<int> calls = 0;
  std::exception_ptr error;
  EmbeddingRun run = start_embedding(model, {{5, 6}, {7}}, {}, [&](EmbeddingOutcome outcome) {
    error = outcome.error;
    ++calls;
  });
  EXPECT_EQ(calls, 0);
  run.cancel();
  ASSERT_TRUE(eventually([&] { return calls == 1; }));
  expect_error(ErrorKind::cancelled, {}, [&] { std::rethrow_exception(error); });
  expect_error(ErrorKind::cancelled, {},
               [&] { embed(model, texts(3), {}, [](std::size_t, std::size_t) { return false; }); });
  model->engine().resume();
  EXPECT_EQ(embed(model, texts(3)).size(), 3u);
  EXPECT_EQ(calls, 1);
}

// A queue that holds two texts is filled again and again.
TEST_F(Embed, AShortQueueIsNotOverrun) {
  LoadOptions options;
  options.engine.queue_limit = 2;
  const auto model = encoder(options);
  EXPECT_EQ(embed(model, texts(60)).size(), 60u);
}

class NoSink final : public EventSink {
 public:
  void take(std::span<TokenEvent>) override {}
};

// Allows every token, and does something else while a step is computed.
class BusyMask final : public TokenMask {
 public:
  explicit BusyMask(std::function<void()> act) : act_(std::move(act)) {}
  void allow(std::span<const TokenId>, std::span<std::uint64_t> allowed) override {
    act_();
    std::ranges::fill(allowed, ~std::uint64_t{0});
  }

 private:
  const std::function<void()> act_;
};

// Others take every place in the queue as soon as it is free, also that of the last text in flight: the call waits for
// its turn like them.
TEST_F(Embed, ACallThatHasBegunOutlastsAFullQueue) {
  LoadOptions options;
  options.engine.queue_limit = 3;
  options.executor.sequences = 3;
  const auto model = load_toy(write_toy_chat(folder_.path(), {.context = 256}), options);
  Engine& engine = model->engine();
  const auto sink = std::make_shared<NoSink>();
  const auto fill_queue = [&] {
    for (SubmitStatus status = SubmitStatus::accepted; status == SubmitStatus::accepted;) {
      EngineRequest other;
      other.prompt = {5, 6, 7};
      other.max_tokens = 8;
      status = engine.submit(std::move(other), sink).status;
    }
  };
  EngineRequest first;
  first.prompt = {5, 6, 7};
  first.max_tokens = 200;
  first.mask = [&](std::int32_t) { return std::make_unique<BusyMask>(fill_queue); };
  engine.pause();
  ASSERT_EQ(engine.submit(std::move(first), sink).status, SubmitStatus::accepted);
  std::optional<EmbeddingOutcome> outcome;
  std::atomic<bool> done = false;
  const std::vector<std::vector<TokenId>> texts(12, {5, 6});
  const EmbeddingRun run = start_embedding(model, texts, {}, [&](EmbeddingOutcome result) {
    outcome = std::move(result);
    done = true;
  });
  engine.resume();
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  engine.drain_and_wait();
  if (outcome->error) std::rethrow_exception(outcome->error);
  EXPECT_EQ(outcome->embeddings.size(), texts.size());
}

// What a caller gives is written to, with the same bits, and nothing beyond it.
TEST_F(Embed, VectorsAreWrittenWhereTheCallerSays) {
  for (const auto& model : {encoder(), decoder()}) {
    for (const EmbeddingOptions& options :
         {EmbeddingOptions{}, EmbeddingOptions{.normalize = false, .dimensions = 7}}) {
      const std::vector<std::string> all = texts(30);
      const std::vector<Embedding> expected = embed(model, all, options);
      const auto width = static_cast<std::size_t>(vector_width(*model, options));
      constexpr float kUntouched = -77.0f;
      std::vector<float> memory(all.size() * (width + 1), kUntouched);
      std::vector<std::vector<TokenId>> tokens;
      std::vector<std::span<float>> places;
      for (std::size_t i = 0; i < all.size(); ++i) {
        tokens.push_back(encode_text(*model, all[i]).tokens);
        places.push_back(std::span(memory).subspan(i * (width + 1), width));
      }
      std::optional<EmbeddingOutcome> outcome;
      std::atomic<bool> done = false;
      const EmbeddingRun run =
          start_embedding_into(model, std::move(tokens), places, options, [&](EmbeddingOutcome result) {
            outcome = std::move(result);
            done = true;
          });
      ASSERT_TRUE(eventually([&] { return done.load(); }));
      ASSERT_FALSE(outcome->error);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(std::vector<float>(places[i].begin(), places[i].end()), expected[i].values) << i;
        EXPECT_TRUE(outcome->embeddings[i].values.empty());
        EXPECT_EQ(outcome->embeddings[i].tokens, expected[i].tokens);
        EXPECT_EQ(memory[i * (width + 1) + width], kUntouched) << i;
      }
    }
  }
}

TEST_F(Embed, PlacesMustFitTheTexts) {
  const auto model = encoder();
  std::vector<float> memory(static_cast<std::size_t>(model->spec().width));
  const auto start = [&](std::vector<std::span<float>> places, const EmbeddingOptions& options) {
    start_embedding_into(model, {{5, 6}}, std::move(places), options, [](EmbeddingOutcome) {});
  };
  expect_error(ErrorKind::usage, {"places"}, [&] { start({}, {}); });
  expect_error(ErrorKind::usage, {"places"}, [&] { start({std::span(memory).first(memory.size() - 1)}, {}); });
  expect_error(ErrorKind::usage, {"pooled"}, [&] { start({std::span(memory)}, {.pooling = Pooling::none}); });
}

TEST_F(Embed, RowsOfTheTable) {
  const auto model = decoder();
  const std::vector<TokenId> ids = {3, 9, 3};
  const auto rows = embedding_rows(*model, ids);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], rows[2]);
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_EQ(std::ssize(rows[0]), model->spec().width);
  expect_error(ErrorKind::bad_input, {"-1"}, [&] { embedding_rows(*model, std::vector<TokenId>{-1}); });
}

TEST_F(Embed, APairIsOneTextWithItsSpecialTokens) {
  const auto model = encoder();
  const Tokenizer& tokenizer = *model->tokenizer();
  const EncodedText pair = encode_pair(*model, encode_query(*model, "the fox"), "a dog");
  EXPECT_EQ(tokenizer.decode(pair.tokens, true),
            tokenizer.decode(tokenizer.encode("[CLS]the fox[SEP]a dog[SEP]", {.parse_special = true}), true));
  EXPECT_FALSE(pair.cut);
  const EncodedText cut = encode_pair(*model, encode_query(*model, "the fox"), std::string(4000, '.'));
  EXPECT_TRUE(cut.cut);
  EXPECT_EQ(cut.tokens.size(), longest_embedded_text(*model));
  EXPECT_EQ(cut.tokens.back(), pair.tokens.back());
}

TEST_F(Embed, ALongQueryLeavesRoomForWhatMayAnswerIt) {
  const auto model = encoder();
  const EncodedText query = encode_query(*model, std::string(4000, '.'));
  EXPECT_TRUE(query.cut);
  EXPECT_GT(query.full_tokens, longest_embedded_text(*model));
  EXPECT_LT(query.tokens.size(), longest_embedded_text(*model));
  EXPECT_NE(encode_pair(*model, query, "the fox").tokens, encode_pair(*model, query, "a dog").tokens);
}

}  // namespace
}  // namespace quarrel::test
