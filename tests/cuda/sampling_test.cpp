// Tokens chosen on the device against the host's sampler, on the same logits and random numbers: the same tokens but
// for draws that fall upon the boundary between two.
#include "backend/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/logit_edits.h"
#include "base/as_size.h"
#include "cuda/draws.h"
#include "cuda/fixture.h"

namespace quarrel::cuda {
namespace {

constexpr int kRows = 256;  // of the same logits, with other random numbers

struct Case {
  std::string name;
  std::vector<float> logits;
  SamplingParams params;
};

void test_draws(Fixture& fixture, const Case& c) {
  const int vocabulary = static_cast<int>(c.logits.size());
  std::vector<float> logits;
  std::vector<TokenDraw> draws;
  for (int row = 0; row < kRows; ++row) {
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
    draws.push_back(token_draw({.random = uniform(c.params.seed, static_cast<std::uint64_t>(row)),
                                .temperature = static_cast<double>(c.params.temperature),
                                .top_k = c.params.top_k,
                                .top_p = c.params.top_p,
                                .min_p = c.params.min_p}));
  }
  const DeviceBuffer device_logits = to_device(logits);
  const DeviceBuffer device_draws = to_device(draws);
  const DeviceBuffer targets = to_device(std::vector<std::int32_t>(kRows, kChooseDrawn));
  const DeviceBuffer ids = poisoned(kRows * 4);
  const DeviceBuffer logprobs = poisoned(kRows * 4);
  choose_tokens(fixture.context(), {.logits = device_logits.as<float>(),
                                    .targets = targets.as<std::int32_t>(),
                                    .draws = device_draws.as<TokenDraw>(),
                                    .rows = kRows,
                                    .vocabulary = vocabulary,
                                    .ids = ids.as<std::int32_t>(),
                                    .logprobs = logprobs.as<float>()});
  const auto found = to_host(ids.as<std::int32_t>(), kRows);
  const auto distribution = sampling_distribution(c.logits, {.params = c.params});
  int others = 0;
  double farthest = 0.0;
  for (int row = 0; row < kRows; ++row) {
    const auto draw = static_cast<std::uint64_t>(row);
    const SampleResult expected = sample_row(c.logits, {.params = c.params, .draw = draw});
    if (expected.id == found[as_size(row)]) continue;
    ++others;
    farthest = std::max(farthest, beyond(distribution, found[as_size(row)], uniform(c.params.seed, draw)));
  }
  fixture.check(fmt::format("draws, {}", c.name), farthest <= kBoundary,
                fmt::format("{} of {} others, {:.1e} beyond their share", others, kRows, farthest));
}

struct Filters {
  const char* what;
  std::int32_t top_k;
  float top_p;
  float min_p;
};

void time_draws(Fixture& fixture, int vocabulary, const char* name, const SamplerState::Draw& draw) {
  const DeviceBuffer logits = to_device(random_values(as_size(vocabulary), 3.0f, fixture.random()));
  const DeviceBuffer draws = to_device(std::vector{token_draw(draw)});
  const DeviceBuffer targets = to_device(std::vector<std::int32_t>{kChooseDrawn});
  const DeviceBuffer results = poisoned(8);
  const double time = fixture.microseconds(10, fixture.context(), [&](int, const LaunchContext& context) {
    choose_tokens(context, {.logits = logits.as<float>(),
                            .targets = targets.as<std::int32_t>(),
                            .draws = draws.as<TokenDraw>(),
                            .rows = 1,
                            .vocabulary = vocabulary,
                            .ids = results.as<std::int32_t>(),
                            .logprobs = results.as<float>() + 1});
  });
  fixture.report_bytes(fmt::format("draw from {} tokens, {}", vocabulary, name), time, vocabulary * 4.0);
}

}  // namespace

void test_sampling(Fixture& fixture) {
  const SamplingParams usual{.temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 11};
  const auto with = [&](auto change) {
    SamplingParams params = usual;
    change(params);
    return params;
  };
  const auto peaked = random_values(32000, 3.0f, fixture.random());
  const auto flat = random_values(32000, 0.001f, fixture.random());
  std::vector<float> rounded = random_values(5000, 2.0f, fixture.random());  // very many are equal
  for (float& logit : rounded) logit = std::round(logit);
  std::vector<float> masked(3000, -std::numeric_limits<float>::infinity());  // fewer are left than top-k asks for
  for (std::size_t i = 7; i < masked.size(); i += 200) masked[i] = static_cast<float>(i % 13);
  std::vector<float> far(2000, -90.0f);
  far[1234] = 20.0f;
  using Named = std::pair<const char*, const std::vector<float>*>;
  for (const auto& [name, logits] : {Named{"peaked", &peaked}, Named{"flat", &flat}, Named{"rounded", &rounded},
                                     Named{"masked", &masked}, Named{"far", &far}}) {
    test_draws(fixture, {fmt::format("{}, usual", name), *logits, usual});
    test_draws(fixture, {fmt::format("{}, 1 of 256", name), *logits, with([](auto& p) {
                           p.top_k = 256;
                           p.top_p = 1.0f;
                           p.min_p = 0.0f;
                           p.temperature = 1.5f;
                         })});
    test_draws(fixture, {fmt::format("{}, top-k 1", name), *logits, with([](auto& p) { p.top_k = 1; })});
    test_draws(fixture, {fmt::format("{}, top-p 0", name), *logits, with([](auto& p) { p.top_p = 0.0f; })});
    for (const auto& [what, top_k, top_p, min_p] :
         {Filters{"top-p", 0, 0.9f, 0.0f}, Filters{"top-p close to 1", 0, 0.9999f, 0.0f},
          Filters{"top-p 0 alone", 0, 0.0f, 0.0f}, Filters{"min-p", 0, 1.0f, 0.02f}, Filters{"both", 0, 0.8f, 0.1f},
          Filters{"1 of 257", 257, 1.0f, 0.0f}, Filters{"top-k 1500 and top-p", 1500, 0.7f, 0.0f},
          Filters{"top-k, top-p and min-p", 1900, 0.95f, 0.01f}}) {
      test_draws(fixture, {fmt::format("{}, {}", name, what), *logits, with([&](auto& p) {
                             p.top_k = top_k;
                             p.top_p = top_p;
                             p.min_p = min_p;
                             p.temperature = 1.2f;
                           })});
    }
    test_draws(fixture, {fmt::format("{}, all", name), *logits, with([](auto& p) {
                           p.top_k = 0;
                           p.top_p = 1.0f;
                           p.min_p = 0.0f;
                         })});
  }
  if (!fixture.times()) return;
  for (const int vocabulary : {32000, 201088}) {
    time_draws(fixture, vocabulary, "from all", {.random = 0.4});
    time_draws(fixture, vocabulary, "usual",
               {.random = 0.4, .temperature = 0.7, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f});
    time_draws(fixture, vocabulary, "top-p 0.95", {.random = 0.4, .temperature = 0.7, .top_p = 0.95f});
    time_draws(fixture, vocabulary, "top-k 1000, top-p 0.95",
               {.random = 0.4, .temperature = 0.7, .top_k = 1000, .top_p = 0.95f});
  }
}

}  // namespace quarrel::cuda
