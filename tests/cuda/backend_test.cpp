// Whole toy models on the GPU: every architecture against exact numbers, every weight type, shapes that take the
// fast kernels against the reference, and the promises of a backend: determinism, two steps in flight, refusals.
#include <algorithm>
#include <array>

#include "backend/reference/reference_backend.h"
#include "cuda/cuda_test.h"
#include "support/golden.h"
#include "support/sequences.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel::test {
namespace {

struct RunOptions {
  RowClass row_class = RowClass::prompt;
  std::int32_t chunk = 0;  // 0: at once
  KvType kv_type = KvType::f32;
  bool deterministic = false;
  ActivationPrecision activations = ActivationPrecision::int8_split;
  bool mirrors = true;
};

// [tokens][vocabulary]
std::vector<float> logits_of(const std::filesystem::path& file, Device& device, std::span<const TokenId> tokens,
                             const RunOptions& run) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  LoneModel model(
      GgufFile::open(file), device,
      {.context = count,
       .sequences = 1,
       .rows = count,
       .kv_type = run.kv_type,
       .backend = {.activations = run.activations, .deterministic = run.deterministic, .mirrors = run.mirrors}});
  const auto vocabulary = static_cast<std::size_t>(model.model().spec().vocabulary);
  std::vector<float> logits(tokens.size() * vocabulary);
  std::vector<Want> wants;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    wants.push_back({.index = static_cast<std::int32_t>(i), .logits = logits.data() + i * vocabulary});
  }
  Sequences texts(model);
  TestSequence sequence = texts.make();
  texts.run_chunked({.sequence = &sequence, .tokens = tokens, .row_class = run.row_class, .wants = wants}, run.chunk);
  return logits;
}

// What half of the rows are within: a few that went to another expert do not show in it.
double median_of_rows(std::span<const float> found, std::span<const float> expected, std::size_t rows) {
  const std::size_t width = expected.size() / rows;
  std::vector<double> errors;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = [&](std::span<const float> all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * width);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(width));
    };
    errors.push_back(nmse(row(found), row(expected)));
  }
  std::ranges::nth_element(errors, errors.begin() + static_cast<std::ptrdiff_t>(rows / 2));
  return errors[rows / 2];
}

std::string test_name(std::string name) {
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

// ---- Every architecture ----

class CudaToy : public CudaTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaToy, LogitsAreExact) {
  const TempDir folder;
  const auto file = write_toy(GetParam(), folder.path());
  const auto golden = load_f32(test_data(std::string("arch/") + GetParam() + ".f32"));
  const auto tokens = golden_tokens();
  for (const RowClass row_class : {RowClass::prompt, RowClass::generated}) {
    for (const bool deterministic : {false, true}) {
      const auto at_once = logits_of(file, *cuda_, tokens, {.row_class = row_class, .deterministic = deterministic});
      const double error = nmse(at_once, golden);
      std::printf("%-10s %s%s NMSE %.2e\n", GetParam(), row_class == RowClass::prompt ? "prompt" : "generated",
                  deterministic ? ", deterministic" : "", error);
      EXPECT_LE(error, 1e-6);
      if (!deterministic) continue;
      for (const std::int32_t chunk : {1, 7}) {
        EXPECT_EQ(
            logits_of(file, *cuda_, tokens, {.row_class = row_class, .chunk = chunk, .deterministic = deterministic}),
            at_once)
            << "chunks of " << chunk;
      }
    }
  }
  // An F16 cache, which takes other kernels.
  EXPECT_LE(nmse(logits_of(file, *cuda_, tokens, {.kv_type = KvType::f16}), golden), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Decoders, CudaToy,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "phi3", "gemma3", "granite", "nemotron",
                                         "mixtral", "qwen3moe", "granitemoe", "granitehybrid", "granitehybrid-dense",
                                         "nemotron_h", "nemotron_h_moe", "gpt-oss", "mamba", "mamba2"),
                         [](const auto& param) { return test_name(param.param); });

class CudaEncoder : public CudaTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaEncoder, PooledVectorIsExactWhateverElseIsInTheStep) {
  const TempDir folder;
  const auto file = write_toy(GetParam(), folder.path());
  const auto golden = load_f32(test_data(std::string("arch/") + GetParam() + ".f32"));
  const auto tokens = golden_tokens();
  const auto last = static_cast<std::int32_t>(tokens.size()) - 1;
  for (const KvType kv_type : {KvType::f32, KvType::f16}) {
    LoneModel model(GgufFile::open(file), *cuda_, {.context = 64, .sequences = 3, .rows = 128, .kv_type = kv_type});
    std::vector<float> alone(golden.size());
    std::vector<float> together(golden.size());
    const Want want_alone{.index = last, .pooled = alone.data()};
    const Want want_together{.index = last, .pooled = together.data()};
    Sequences texts(model);
    TestSequence first = texts.make();
    texts.run_chunked({.sequence = &first, .tokens = tokens, .wants = {&want_alone, 1}, .pooling = Pooling::mean});
    std::printf("%-10s %s NMSE %.2e\n", GetParam(), kv_type == KvType::f32 ? "F32" : "F16", nmse(alone, golden));
    EXPECT_LE(nmse(alone, golden), kv_type == KvType::f32 ? 1e-6 : 1e-5);
    texts.truncate(first, 0);
    TestSequence second = texts.make();
    const std::array feeds = {
        Feed{.sequence = &second, .tokens = std::span(tokens).first(17)},
        Feed{.sequence = &first, .tokens = tokens, .wants = {&want_together, 1}, .pooling = Pooling::mean},
    };
    texts.run(feeds);
    EXPECT_LE(nmse(together, golden), kv_type == KvType::f32 ? 1e-6 : 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, CudaEncoder, testing::Values("bert", "nomic-bert"),
                         [](const auto& param) { return test_name(param.param); });

// ---- Every weight type ----

class CudaType : public CudaTest, public testing::WithParamInterface<const char*> {};

TEST_P(CudaType, LogitsAreNearThoseOfTheDecodedWeights) {
  const auto file = test_data(std::string("quant/") + GetParam() + ".gguf");
  const auto golden = load_f32(test_data(std::string("quant/") + GetParam() + ".f32"));
  const auto tokens = golden_tokens();
  const auto error = [&](const RunOptions& run) { return nmse(logits_of(file, *cuda_, tokens, run), golden); };
  const double prompt = error({});
  const double generated = error({.row_class = RowClass::generated, .chunk = 5});
  const double exact = error({.deterministic = true});
  const double halves = error({.row_class = RowClass::generated, .chunk = 1, .activations = ActivationPrecision::f16});
  const double f16_cache = error({.row_class = RowClass::generated, .chunk = 1, .kv_type = KvType::f16});
  std::printf("%-10s prompt %.2e  generated %.2e  deterministic %.2e  F16 activations %.2e  F16 cache %.2e\n",
              GetParam(), prompt, generated, exact, halves, f16_cache);
  EXPECT_LE(prompt, 1e-6);
  EXPECT_LE(generated, 1e-6);
  EXPECT_LE(exact, 1e-6);
  EXPECT_LE(halves, 1e-6);
  EXPECT_LE(f16_cache, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaType,
                         testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_S",
                                         "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_NL", "IQ4_XS"),
                         [](const auto& param) { return std::string(param.param); });

// ---- Shapes of real models ----

struct Shape {
  const char* name;
  const char* toy;
  ToyOptions options;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

std::vector<Shape> shapes() {
  const auto options = [](QuantType type, std::uint32_t head, std::uint32_t heads, std::uint32_t kv_heads) {
    return ToyOptions{.type = type,
                      .embedding = 256,
                      .layers = 3,
                      .feed_forward = 512,
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .head = head,
                      .rotary = head,
                      .context = 1024};
  };
  const auto experts = [&](QuantType type, std::uint32_t count, std::uint32_t used) {
    ToyOptions shape = options(type, 64, 4, 2);
    shape.experts = count;
    shape.experts_used = used;
    return shape;
  };
  const auto recurrent = [&](QuantType type) {
    ToyOptions shape = experts(type, 16, 4);
    shape.layers = {};
    shape.ssm = ToySsm{.conv = 4, .inner = 512, .state = 128, .heads = 8, .groups = 2};
    return shape;
  };
  // Its output projection is cut into slabs, and no gate is there to add them up.
  ToyOptions wide = options(QuantType::q4_k, 128, 16, 4);
  wide.embedding = 2048;
  wide.layers = 2;
  ToyOptions window = options(QuantType::q5_0, 64, 4, 1);
  window.window = 70;
  return {{"llama of 64, Q4_K", "llama", options(QuantType::q4_k, 64, 4, 2)},
          {"llama of 128, Q6_K", "llama", options(QuantType::q6_k, 128, 4, 1)},
          {"llama of 64, Q4_1", "llama3", options(QuantType::q4_1, 64, 3, 3)},
          {"llama of 128, F16", "llama", options(QuantType::f16, 128, 2, 2)},
          {"qwen3 of 128, Q8_0", "qwen3", options(QuantType::q8_0, 128, 4, 2)},
          {"qwen2 of 64, Q5_1", "qwen2", options(QuantType::q5_1, 64, 8, 2)},
          {"gemma3 of 64, Q5_0", "gemma3", window},
          {"nemotron of 64, Q4_0", "nemotron", options(QuantType::q4_0, 64, 4, 4)},
          {"nemotron of 128, Q4_K", "nemotron", wide},
          {"mixtral of 64, Q4_K", "mixtral", experts(QuantType::q4_k, 8, 2)},
          {"mixtral of 64, Q6_K", "mixtral", experts(QuantType::q6_k, 6, 3)},
          {"mixtral of 64, F16", "mixtral", experts(QuantType::f16, 8, 2)},
          {"qwen3moe of 64, Q5_K", "qwen3moe", experts(QuantType::q5_k, 40, 5)},
          {"gpt-oss of 64, MXFP4", "gpt-oss", experts(QuantType::mxfp4, 32, 4)},
          {"granitemoe of 64, Q4_0", "granitemoe", experts(QuantType::q4_0, 12, 2)},
          {"granitehybrid of 64, Q8_0", "granitehybrid", recurrent(QuantType::q8_0)},
          {"nemotron_h_moe of 64, Q5_0", "nemotron_h_moe", recurrent(QuantType::q5_0)},
          {"mamba2, Q4_1", "mamba2", recurrent(QuantType::q4_1)},
          {"mamba, Q5_1", "mamba", {.type = QuantType::q5_1, .embedding = 256}}};
}

class CudaShape : public CudaTest, public testing::WithParamInterface<Shape> {};

TEST_P(CudaShape, LogitsAreThoseOfTheReference) {
  const TempDir folder;
  const auto file = write_toy(GetParam().toy, folder.path(), GetParam().options);
  const auto tokens = golden_tokens(300);
  const auto reference = make_reference_device({});
  const auto expected = logits_of(file, *reference, tokens, {.kv_type = KvType::f16});
  const auto error = [&](const RunOptions& run) {
    const auto found = logits_of(file, *cuda_, tokens, run);
    EXPECT_LE(median_of_rows(found, expected, tokens.size()), 2e-5);
    return nmse(found, expected);
  };
  const double prompt = error({.kv_type = KvType::f16});
  const double chunks = error({.chunk = 77, .kv_type = KvType::f16});
  const double few = error({.chunk = 13, .kv_type = KvType::f16});
  const double batch = error({.row_class = RowClass::generated, .chunk = 40, .kv_type = KvType::f16});
  const double single = error({.row_class = RowClass::generated, .chunk = 1, .kv_type = KvType::f16});
  const double plain = error({.kv_type = KvType::f16, .mirrors = false});
  std::printf("%-22s prompt %.2e  (no mirrors %.2e)  chunks of 77 %.2e  of 13 %.2e  40 rows %.2e  single rows %.2e\n",
              GetParam().name, prompt, plain, chunks, few, batch, single);
  // What two correct caches of F16 differ by, where a rounding went the other way, is within this. A router may choose
  // the other one of two experts that are as good, and then that row is another, and those that look at it a little.
  const double bound = GetParam().options.experts ? 5e-3 : 2e-5;
  for (const double found : {prompt, plain, chunks, few, batch, single}) EXPECT_LE(found, bound);
  const RunOptions exact{.row_class = RowClass::prompt, .kv_type = KvType::f16, .deterministic = true};
  const auto at_once = logits_of(file, *cuda_, tokens, exact);
  for (const std::int32_t chunk : {1, 50}) {
    RunOptions in_chunks = exact;
    in_chunks.chunk = chunk;
    EXPECT_EQ(logits_of(file, *cuda_, tokens, in_chunks), at_once) << "deterministic, chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Real, CudaShape, testing::ValuesIn(shapes()), [](const auto& param) {
  std::string name = param.param.name;
  std::erase(name, ',');
  return test_name(name);
});

}  // namespace
}  // namespace quarrel::test
