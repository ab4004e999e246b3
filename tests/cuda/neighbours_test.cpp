// Under `deterministic` a row's bits are its own: the same alone, among two to seventeen generated rows, beside rows of
// prompts, and as a row of a prompt that was cut anywhere.
#include <algorithm>

#include "cuda/cuda_test.h"
#include "support/golden.h"
#include "support/sequences.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kMostRows = 17;
constexpr std::int32_t kPrompt = 40;

struct Toy {
  const char* name;
  QuantType type;
};

void PrintTo(const Toy& toy, std::ostream* out) { *out << toy.name; }

class CudaNeighbours : public CudaTest, public testing::WithParamInterface<Toy> {
 protected:
  std::filesystem::path model() const {
    const Toy& toy = GetParam();
    ToyOptions options{.type = toy.type, .embedding = 256, .feed_forward = 512, .context = 1024};
    if (std::string(toy.name) != "mamba2") {
      options.heads = 4;
      options.kv_heads = 2;
      options.head = options.rotary = 64;
    }
    return write_toy(toy.name, folder_.path(), options);
  }
  TempDir folder_;
};

// Texts of various lengths, one token of each in a step; after it, perhaps, a prompt. The first text's logits.
class Crowd {
 public:
  Crowd(const std::filesystem::path& file, Device& device)
      : model_(GgufFile::open(file), device,
               {.context = 256,
                .sequences = kMostRows + 1,
                .rows = 128,
                .kv_type = KvType::f16,
                .backend = {.deterministic = true}}),
        vocabulary_(static_cast<std::size_t>(model_.model().spec().vocabulary)) {}

  // A token of class generated among `rows`, in place `place` of them, beside `prompt` rows of another text.
  std::vector<float> generated(std::int32_t rows, std::int32_t place, std::int32_t prompt) {
    Sequences texts(model_);
    std::vector<TestSequence> sequences;
    for (std::int32_t r = 0; r <= rows; ++r) sequences.push_back(texts.make());
    const std::vector<TokenId> text = golden_tokens(kPrompt + 1);
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::size_t length = r == place ? kPrompt : static_cast<std::size_t>(5 + 11 * r % 64);
      const std::vector<TokenId> own = r == place ? text : golden_tokens(length + 1);
      texts.run_chunked({.sequence = &sequences[static_cast<std::size_t>(r)], .tokens = std::span(own).first(length)});
    }
    std::vector<float> logits(vocabulary_);
    const Want want{.index = 0, .logits = logits.data()};
    std::vector<Feed> feeds;
    const std::vector<TokenId> others = golden_tokens(kMostRows);
    for (std::int32_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r);
      feeds.push_back({.sequence = &sequences[at],
                       .tokens = r == place ? std::span(text).last(1) : std::span(others).subspan(at, 1),
                       .row_class = RowClass::generated});
      if (r == place) feeds.back().wants = {&want, 1};
    }
    const std::vector<TokenId> beside = golden_tokens(as_count(std::max(1, prompt)));
    if (prompt > 0) feeds.push_back({.sequence = &sequences.back(), .tokens = beside});
    texts.run(feeds);
    for (TestSequence& sequence : sequences) texts.truncate(sequence, 0);
    return logits;
  }

  // The last row of a prompt whose rows before it are `before` in another step, beside `rows` generated ones.
  std::vector<float> prompted(std::int32_t before, std::int32_t rows) {
    Sequences texts(model_);
    std::vector<TestSequence> sequences;
    for (std::int32_t r = 0; r <= rows; ++r) sequences.push_back(texts.make());
    const std::vector<TokenId> text = golden_tokens(kPrompt);
    for (std::int32_t r = 0; r < rows; ++r) {
      texts.run_chunked({.sequence = &sequences[static_cast<std::size_t>(r)],
                         .tokens = std::span(text).first(static_cast<std::size_t>(3 + r))});
    }
    TestSequence& own = sequences.back();
    if (before > 0) texts.run_chunked({.sequence = &own, .tokens = std::span(text).first(as_count(before))});
    std::vector<float> logits(vocabulary_);
    const Want want{.index = kPrompt - before - 1, .logits = logits.data()};
    std::vector<Feed> feeds;
    for (std::int32_t r = 0; r < rows; ++r) {
      feeds.push_back({.sequence = &sequences[static_cast<std::size_t>(r)],
                       .tokens = std::span(text).subspan(as_count(r), 1),
                       .row_class = RowClass::generated});
    }
    feeds.push_back({.sequence = &own, .tokens = std::span(text).subspan(as_count(before)), .wants = {&want, 1}});
    texts.run(feeds);
    for (TestSequence& sequence : sequences) texts.truncate(sequence, 0);
    return logits;
  }

 private:
  static std::size_t as_count(std::int32_t value) { return static_cast<std::size_t>(value); }
  LoneModel model_;
  std::size_t vocabulary_;
};

TEST_P(CudaNeighbours, ChangeNoBit) {
  Crowd crowd(model(), *cuda_);
  const std::vector<float> alone = crowd.generated(1, 0, 0);
  for (std::int32_t rows = 1; rows <= kMostRows; ++rows) {
    for (const std::int32_t prompt : {0, 1, 33}) {
      EXPECT_EQ(crowd.generated(rows, rows / 2, prompt), alone) << rows << " rows and " << prompt << " of a prompt";
    }
  }
  const std::vector<float> whole = crowd.prompted(0, 0);
  for (const std::int32_t rows : {0, 1, 5, kMostRows}) {
    for (const std::int32_t before : {0, 1, 7, 32, kPrompt - 1}) {
      EXPECT_EQ(crowd.prompted(before, rows), whole) << "cut at " << before << ", beside " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Toys, CudaNeighbours,
                         testing::Values(Toy{"llama", QuantType::q4_k}, Toy{"qwen3", QuantType::q8_0},
                                         Toy{"llama3", QuantType::f16}, Toy{"mixtral", QuantType::q4_k},
                                         Toy{"gpt-oss", QuantType::mxfp4}, Toy{"granitehybrid", QuantType::q4_0},
                                         Toy{"mamba2", QuantType::q5_0}),
                         [](const auto& toy) {
                           std::string name = toy.param.name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace quarrel::test
