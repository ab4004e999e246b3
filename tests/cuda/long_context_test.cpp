// Contexts of 4096 and 32 768 tokens through whole toys on the GPU, with rotation stretched by YaRN, with windows and
// sinks: as on the CPU, whether the last tokens are rows of a prompt or come one by one.
#include <cstdio>

#include "backend/create.h"
#include "cuda/cuda_test.h"
#include "support/golden.h"
#include "support/rewritten_toy.h"
#include "support/sequences.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

constexpr std::size_t kWanted = 6;  // the last tokens, whose logits are compared
constexpr std::int32_t kChunk = 2048;

struct Course {
  std::int32_t chunk = kChunk;
  bool one_by_one = false;  // the last tokens are of class generated
  bool deterministic = false;
};

std::vector<float> last_logits(const std::filesystem::path& file, Device& device, std::int32_t context,
                               const Course& course) {
  LoneModel model(GgufFile::open(file), device,
                  {.context = context,
                   .sequences = 1,
                   .rows = kChunk,
                   .kv_type = KvType::f16,
                   .backend = {.activations = ActivationPrecision::int8_split, .deterministic = course.deterministic}});
  const auto vocabulary = static_cast<std::size_t>(model.model().spec().vocabulary);
  const std::vector<TokenId> tokens = golden_tokens(static_cast<std::size_t>(context));
  std::vector<float> logits(kWanted * vocabulary);
  const std::size_t first = course.one_by_one ? 0 : tokens.size() - kWanted;
  std::vector<Want> wants;
  for (std::size_t i = 0; i < kWanted; ++i) {
    wants.push_back({.index = static_cast<std::int32_t>(first + i), .logits = logits.data() + i * vocabulary});
  }
  Sequences texts(model);
  TestSequence sequence = texts.make();
  const std::span<const TokenId> all = tokens;
  if (!course.one_by_one) {
    texts.run_chunked({.sequence = &sequence, .tokens = all, .wants = wants}, course.chunk);
    return logits;
  }
  texts.run_chunked({.sequence = &sequence, .tokens = all.first(tokens.size() - kWanted)}, course.chunk);
  texts.run_chunked(
      {.sequence = &sequence, .tokens = all.last(kWanted), .row_class = RowClass::generated, .wants = wants}, 1);
  return logits;
}

class CudaLongContext : public CudaTest {
 protected:
  // What two correct caches of F16 differ by, where a rounding went the other way, is within the bound.
  void expect_as_on_the_cpu(const std::filesystem::path& file, std::int32_t context, double bound = 2e-5) {
    const auto cpu = make_device({.backend = "cpu"});
    const std::vector<float> expected = last_logits(file, *cpu, context, {});
    const auto error = [&](const Course& course) { return nmse(last_logits(file, *cuda_, context, course), expected); };
    const double prompt = error({});
    const double pieces = error({.chunk = 500});
    const double single = error({.one_by_one = true});
    std::printf("%d tokens: prompt %.2e  pieces of 500 %.2e  one by one %.2e\n", context, prompt, pieces, single);
    for (const double found : {prompt, pieces, single}) EXPECT_LE(found, bound);
    if (context > 4096) return;
    const Course exact{.deterministic = true};
    const std::vector<float> at_once = last_logits(file, *cuda_, context, exact);
    EXPECT_LE(nmse(at_once, expected), bound);
    EXPECT_EQ(last_logits(file, *cuda_, context, {.chunk = 77, .deterministic = true}), at_once);
  }

  static ToyOptions narrow(std::uint32_t context) {
    return {.embedding = 128,
            .layers = 2,
            .feed_forward = 128,
            .heads = 2,
            .kv_heads = 1,
            .head = 64,
            .rotary = 64,
            .context = context};
  }
  std::filesystem::path stretched(std::uint32_t context, std::uint32_t original) const {
    ToyRewriter toy("llama", narrow(context));
    toy.put = [=](GgufWriter& writer) {
      writer.put_string("llama.rope.scaling.type", "yarn");
      writer.put_f32("llama.rope.scaling.factor", static_cast<float>(context) / static_cast<float>(original));
      writer.put_u32("llama.rope.scaling.original_context_length", original);
    };
    return toy.write(folder_ / "stretched.gguf");
  }
  std::filesystem::path windowed(std::uint32_t context, std::uint32_t window) const {
    ToyOptions options = narrow(context);
    options.experts = 2;
    options.experts_used = 2;  // both: no router decides otherwise on other roundings
    options.window = window;
    return write_toy("gpt-oss", folder_.path(), options);
  }
  TempDir folder_;
};

TEST_F(CudaLongContext, FourThousandStretchedByYarn) { expect_as_on_the_cpu(stretched(4096, 512), 4096); }

TEST_F(CudaLongContext, FourThousandWithWindowsAndSinks) { expect_as_on_the_cpu(windowed(4096, 300), 4096); }

TEST_F(CudaLongContext, ThirtyTwoThousandStretchedByYarn) { expect_as_on_the_cpu(stretched(32768, 4096), 32768); }

TEST_F(CudaLongContext, ThirtyTwoThousandWithWindowsAndSinks) { expect_as_on_the_cpu(windowed(32768, 1000), 32768); }

}  // namespace
}  // namespace quarrel::test
