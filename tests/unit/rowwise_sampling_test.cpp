// The kernels behind the choice of a token at every level, and that a choice made with them, on any number of threads,
// is the one that plain loops make.
#include "backend/sampling.h"
#include "base/thread_pool.h"
#include "unit/rowwise_support.h"

namespace quarrel::test {
namespace {

// Falls off like the logits of a language model, in no order.
std::vector<float> model_logits(std::size_t count, unsigned seed) {
  std::vector<float> logits = random_values(count, seed);
  for (std::size_t i = 0; i < count; ++i) logits[i] += 11.0f - 1.5f * std::log(static_cast<float>(i + 1));
  std::mt19937 random(seed);
  std::shuffle(logits.begin(), logits.end(), random);
  return logits;
}

TEST(RowwiseSampling, LargestAndNextAbove) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    const std::vector<float> values = random_values(length, 1);
    const Row row{values};
    const float* logits = row.values().data();
    float best = 0.0f;
    ASSERT_TRUE(kernels.sampling.largest(logits, length, &best));
    float expected = -kInf;
    for (const float value : values) expected = std::max(expected, value);
    ASSERT_EQ(best, expected);
    for (const float limit : {-kInf, -1.0f, 0.0f, 2.0f, expected, 100.0f}) {
      for (std::size_t first = 0; first <= length; first += 1 + length / 11) {
        std::size_t place = first;
        while (place < length && !(values[place] > limit)) ++place;
        ASSERT_EQ(kernels.sampling.next_above(logits, first, length, limit), place) << limit << " from " << first;
      }
    }
    for (std::size_t place = 0; place < length; place += 1 + length / 13) {
      for (const float bad : {kNan, kInf, -kInf}) {
        std::vector<float> spoilt = values;
        spoilt[place] = bad;
        ASSERT_EQ(kernels.sampling.largest(spoilt.data(), length, &best), bad == -kInf) << place;
      }
    }
  });
}

TEST(RowwiseSampling, SumOfExponentials) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    std::vector<float> values = random_values(length, 2, 9.0f);
    if (length > 12) values[11] = -kInf;
    const double best = 40.0;
    for (const double scale : {1.0, 1.0 / 0.7, 0.25}) {
      double expected = 0.0;
      for (const float value : values) expected += std::exp((static_cast<double>(value) - best) * scale);
      const double sum = kernels.sampling.sum_exponentials(values.data(), length, best, scale);
      ASSERT_LE(std::abs(sum - expected), 4e-15 * expected + 1e-22) << scale;
    }
  });
}

std::vector<SampleRequest> requests(std::span<const std::uint64_t> mask, std::span<const TokenCount> seen) {
  std::vector<SampleRequest> all(12);
  for (SampleRequest& request : all) request.params.temperature = 0.9f;
  all[0].params.temperature = 0.0f;
  all[0].top = kMaxTopTokens;
  all[2].params.top_k = 40;
  all[2].params.top_p = 0.9f;
  all[3].params.top_k = 700;
  all[4].params.top_p = 0.95f;
  all[5].params.min_p = 0.02f;
  all[6].params.typical_p = 0.8f;
  all[7].params.mirostat = true;
  all[8].mask = mask;
  all[9].seen = seen;
  all[9].params.repeat_penalty = 1.3f;
  all[9].params.top_p = 0.99f;
  all[10].params.top_p = 0.5f;
  all[10].params.typical_p = 0.9f;
  all[10].params.min_p = 0.1f;
  all[10].params.top_k = 5;
  all[11].score = 17;
  return all;
}

void expect_same(const SampleResult& actual, const SampleResult& expected) {
  ASSERT_EQ(actual.id, expected.id);
  ASSERT_FLOAT_EQ(actual.logprob, expected.logprob);
  ASSERT_FLOAT_EQ(actual.mirostat_mu, expected.mirostat_mu);
  ASSERT_EQ(actual.top.size(), expected.top.size());
  for (std::size_t i = 0; i < actual.top.size(); ++i) {
    ASSERT_EQ(actual.top[i].id, expected.top[i].id);
    ASSERT_FLOAT_EQ(actual.top[i].logprob, expected.top[i].logprob);
  }
}

TEST(RowwiseSampling, TheChoiceIsThatOfPlainLoops) {
  constexpr std::size_t kVocabulary = 50001;  // several pieces, the last one cut
  std::vector<std::uint64_t> mask(kVocabulary / 64 + 1);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 0 ? ~std::uint64_t{0} : 0x1234567890abcdefu * i;
  const std::vector<TokenCount> seen = {
      {.id = 4, .recent = 2, .answered = 2}, {.id = 50000, .recent = 1}, {.id = 777, .recent = 5, .answered = 5}};
  std::vector<std::vector<float>> rows;
  rows.reserve(3);
  for (unsigned seed = 0; seed < 3; ++seed) rows.push_back(model_logits(kVocabulary, seed));
  for (SampleRequest& request : requests(mask, seen)) {
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
      request.draw = draw;
      const std::vector<float>& logits = rows[draw % rows.size()];
      const SampleResult plain = sample_row(logits, request);
      for (const IsaLevel level : available_levels()) {
        SCOPED_TRACE(testing::Message() << level_name(level) << ", draw " << draw);
        ASSERT_NO_FATAL_FAILURE(expect_same(sample_row(logits, request, kernels_of(level).sampling), plain));
      }
    }
  }
}

TEST(RowwiseSampling, ThreadsChangeNoBit) {
  constexpr std::size_t kVocabulary = 110001;  // enough to be shared
  const std::vector<float> logits = model_logits(kVocabulary, 9);
  const CpuKernels& kernels = kernels_of(available_levels().back());
  for (SampleRequest& request : requests({}, {})) {
    request.top = 5;
    const SampleResult alone = sample_row(logits, request, kernels.sampling);
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const ForEach for_each = [&pool](std::size_t count, const std::function<void(std::size_t)>& task) {
        pool.for_range(static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) task(static_cast<std::size_t>(i));
        });
      };
      const SampleResult shared = sample_row(logits, request, kernels.sampling, for_each);
      ASSERT_EQ(shared.id, alone.id);
      ASSERT_EQ(shared.logprob, alone.logprob);
      ASSERT_EQ(shared.mirostat_mu, alone.mirostat_mu);
      for (std::size_t i = 0; i < alone.top.size(); ++i) ASSERT_EQ(shared.top[i].logprob, alone.top[i].logprob);
    }
  }
}

// A list that is made from a limit holds what a sort of everything would: ties, flat rows, rows of few tokens.
TEST(RowwiseSampling, ManyOfTheLikeliest) {
  std::vector<float> steps(20000);
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<float>((i * 7919) % 50) * 0.5f;
  const std::vector<float> flat(20000, 3.0f);
  std::vector<float> steep(20000);
  for (std::size_t i = 0; i < steep.size(); ++i) steep[i] = -static_cast<float>(i) * 0.4f;
  for (const std::vector<float>& logits : {steps, flat, steep, model_logits(20000, 5)}) {
    for (const std::int32_t count : {1, 100, 129, 1000, 19999}) {
      SampleRequest request;
      request.params.temperature = 1.0f;
      request.params.top_k = count;
      std::vector<TokenId> order(logits.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
      });
      for (const IsaLevel level : available_levels()) {
        const auto kept = sampling_distribution(logits, request, kernels_of(level).sampling);
        ASSERT_EQ(kept.size(), static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i].first, order[i]) << count;
      }
    }
  }
}

}  // namespace
}  // namespace quarrel::test
