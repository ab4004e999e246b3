// What choosing one token costs on one thread, by the size of the vocabulary, with the plain loops of `reference` and
// with the kernels of every level this machine has. The logits of a language model fall off steeply after a few hundred
// tokens, and so do these.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/sampling.h"
#include "register.h"

namespace quarrel {
namespace {

// A Zipf-like distribution over a permuted vocabulary, with noise.
std::vector<float> make_logits(std::size_t vocabulary) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> logits(vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i) {
    logits[i] = 12.0f - 1.6f * std::log(static_cast<float>(i + 1)) + normal(random);
  }
  std::shuffle(logits.begin(), logits.end(), random);
  return logits;
}

struct Case {
  const char* name;
  SampleRequest request;
};

std::vector<Case> cases() {
  const auto drawn = [](float temperature) {
    SampleRequest request;
    request.params.temperature = temperature;
    return request;
  };
  std::vector<Case> all;
  all.push_back({.name = "greedy", .request = {}});
  Case& logprobs = all.emplace_back(Case{.name = "greedy_top20_logprobs", .request = {}});
  logprobs.request.top = kMaxTopTokens;
  all.push_back({.name = "temperature", .request = drawn(0.8f)});
  Case& common = all.emplace_back(Case{.name = "top_k40_top_p0.9", .request = drawn(0.8f)});
  common.request.params.top_k = 40;
  common.request.params.top_p = 0.9f;
  Case& many = all.emplace_back(Case{.name = "top_k1000", .request = drawn(0.8f)});
  many.request.params.top_k = 1000;
  Case& nucleus = all.emplace_back(Case{.name = "top_p0.95", .request = drawn(0.8f)});
  nucleus.request.params.top_p = 0.95f;
  Case& least = all.emplace_back(Case{.name = "min_p0.05", .request = drawn(0.8f)});
  least.request.params.min_p = 0.05f;
  Case& typical = all.emplace_back(Case{.name = "typical0.9", .request = drawn(0.8f)});
  typical.request.params.typical_p = 0.9f;
  Case& mirostat = all.emplace_back(Case{.name = "mirostat", .request = drawn(0.8f)});
  mirostat.request.params.mirostat = true;
  return all;
}

void choose(benchmark::State& state, std::size_t vocabulary, SampleRequest request, const SamplingKernels& kernels) {
  const std::vector<float> logits = make_logits(vocabulary);
  for (auto _ : state) {
    ++request.draw;
    benchmark::DoNotOptimize(sample_row(logits, request, kernels));
  }
}

void register_with(std::string_view name, const SamplingKernels& kernels) {
  for (const std::size_t vocabulary : {std::size_t{49152}, std::size_t{128256}, std::size_t{201088}}) {
    for (const Case& one : cases()) {
      benchmark::RegisterBenchmark(fmt::format("sample/{}/{}/vocabulary:{}", name, one.name, vocabulary).c_str(),
                                   [=](benchmark::State& state) { choose(state, vocabulary, one.request, kernels); })
          ->Unit(benchmark::kMicrosecond)
          ->MinTime(0.05);
    }
  }
}

}  // namespace

void register_all() {
  register_with("plain", scalar_sampling_kernels());
  for (const IsaLevel level : available_levels()) register_with(level_name(level), kernels_of(level).sampling);
}

}  // namespace quarrel
