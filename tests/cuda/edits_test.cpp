// Bias, mask and penalties on the device, and what rarer ways to sample leave, through the lanes and the memory that
// the backend has, against the host's sampler: the same tokens and the same log-probabilities, also of the likeliest
// ones, whether the last token of a text is known or lies on the device alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cuda/logit_edits.h"
#include "base/as_size.h"
#include "cuda/draws.h"
#include "cuda/fixture.h"

namespace quarrel::cuda {
namespace {

constexpr int kRows = 192;
constexpr int kRowWithoutTokens = 5;
constexpr int kBadRow = 7;
constexpr int kTop = 7;
constexpr double kLogprobBound = 1e-4;

struct Case {
  std::string name;
  std::vector<float> logits;
  SamplingParams params;
  bool is_masked = false;
};

struct Row {
  SamplerState lane;    // what the device is told
  SamplerState whole;   // what the host's sampler is told: the unseen token has come
  TokenId unseen = -1;  // none
  std::vector<std::uint64_t> mask;
};

std::vector<TokenId> likeliest(const std::vector<float>& logits) {
  constexpr std::ptrdiff_t kCount = 40;
  std::vector<TokenId> ids(logits.size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  std::ranges::partial_sort(ids, ids.begin() + kCount,
                            [&](TokenId a, TokenId b) { return logits[as_size(a)] > logits[as_size(b)]; });
  ids.resize(kCount);
  return ids;
}

// Half of a text are tokens that are likely anyway, so that penalties decide something.
Row make_row(const Case& c, const std::vector<TokenId>& likely, int index, std::mt19937_64& random) {
  const auto any_token = [&] {
    return random() % 2 == 0 ? likely[random() % likely.size()] : static_cast<TokenId>(random() % c.logits.size());
  };
  std::vector<TokenId> text(random() % 200 + 1);
  std::ranges::generate(text, any_token);
  Row row;
  const LaneStart start{.sampling = &c.params,
                        .draw = static_cast<std::uint64_t>(index),
                        .mirostat_mu = static_cast<float>(index % 4) * 2.5f,
                        .text = text,
                        .prompt_tokens = static_cast<std::int32_t>(text.size() / 2)};
  row.lane.start(start);
  row.whole.start(start);
  if (index % 3 != 0) {
    row.unseen = index % 3 == 1 ? text.back() : any_token();
    row.whole.make_room();
    row.whole.accept({.outcome = SampleOutcome::token,
                      .id = row.unseen,
                      .mirostat_mu = 0.5f + static_cast<float>(index % 7),
                      .top = {}});
  }
  if (!c.is_masked) return row;
  row.mask.resize((c.logits.size() + 63) / 64);
  for (std::uint64_t& word : row.mask) word = index == kRowWithoutTokens ? 0 : random() & random();
  return row;
}

struct Chosen {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::vector<RowReport> reports;
};

Chosen choose(Fixture& fixture, const Case& c, const std::vector<Row>& rows) {
  const int vocabulary = static_cast<int>(c.logits.size());
  std::vector<float> logits;
  std::vector<TokenDraw> draws;
  std::vector<std::int32_t> unseen;
  std::vector<float> lane_mu;  // as the step before has left it
  for (const Row& row : rows) {
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
    unseen.push_back(row.unseen);
    lane_mu.push_back(row.whole.mirostat_mu());
    draws.push_back(token_draw(row.lane.draw(c.logits.size(), row.unseen >= 0 ? 1 : 0)));
    draws.back().top = kTop;
  }
  logits[as_size(kBadRow) * c.logits.size() + 11] = std::numeric_limits<float>::quiet_NaN();
  const DeviceBuffer device_unseen = to_device(unseen);
  const DeviceBuffer device_mu = to_device(lane_mu);
  std::vector<OutputEdits> outputs;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    outputs.push_back({.lane = &rows[i].lane,
                       .mask = rows[i].mask,
                       .unseen = rows[i].unseen >= 0 ? device_unseen.as<std::int32_t>() + i : nullptr,
                       .lane_mu = device_mu.as<float>() + i});
  }
  LogitEditMemory memory;
  std::vector<std::int32_t> places(rows.size());
  memory.gather(0, outputs, places);
  memory.upload(0, fixture.context());
  const DeviceBuffer device_logits = to_device(logits);
  const DeviceBuffer device_draws = to_device(draws);
  const DeviceBuffer device_places = to_device(places);
  const DeviceBuffer device_edits = to_device(std::vector{memory.edits()});
  const bool draws_one = c.params.temperature > 0.0f;
  const DeviceBuffer targets =
      to_device(std::vector<std::int32_t>(rows.size(), draws_one ? kChooseDrawn : kChooseLargest));
  const DeviceBuffer ids = poisoned(rows.size() * 4);
  const DeviceBuffer logprobs = poisoned(rows.size() * 4);
  const DeviceBuffer reports = poisoned(rows.size() * sizeof(RowReport));
  choose_tokens(fixture.context(), {.logits = device_logits.as<float>(),
                                    .targets = targets.as<std::int32_t>(),
                                    .draws = device_draws.as<TokenDraw>(),
                                    .edit_places = device_places.as<std::int32_t>(),
                                    .edits = device_edits.as<const LogitEdits*>(),
                                    .rows = static_cast<int>(rows.size()),
                                    .vocabulary = vocabulary,
                                    .ids = ids.as<std::int32_t>(),
                                    .logprobs = logprobs.as<float>(),
                                    .reports = reports.as<RowReport>()});
  return {.ids = to_host(ids.as<std::int32_t>(), rows.size()),
          .logprobs = to_host(logprobs.as<float>(), rows.size()),
          .reports = to_host(reports.as<RowReport>(), rows.size())};
}

double error_of(float found, float expected) {
  return std::abs(static_cast<double>(found) - double{expected}) / (1.0 + std::abs(double{expected}));
}

// The largest error of the likeliest tokens' log-probabilities; 1 where they are others.
double top_error(std::span<const TopToken> found, const std::vector<TokenLogprob>& expected) {
  double error = 0.0;
  for (std::size_t i = 0; i < as_size(kTop); ++i) {
    const bool exists = i < expected.size();
    if (found[i].id != (exists ? expected[i].id : -1)) return 1.0;
    if (exists) error = std::max(error, error_of(found[i].logprob, expected[i].logprob));
  }
  return error;
}

void test_case(Fixture& fixture, const Case& c) {
  const std::vector<TokenId> likely = likeliest(c.logits);
  std::vector<Row> rows;
  for (int i = 0; i < kRows; ++i) rows.push_back(make_row(c, likely, i, fixture.random()));
  const Chosen chosen = choose(fixture, c, rows);
  int others = 0;
  double farthest = 0.0;
  double logprob_error = 0.0;
  for (int i = 0; i < kRows; ++i) {
    const std::int32_t found = chosen.ids[as_size(i)];
    if (i == kBadRow) {
      farthest = std::max(farthest, found == kBadLogits ? 0.0 : 1.0);
      continue;
    }
    Row& row = rows[as_size(i)];
    const SampleRequest& request = row.whole.request(row.mask, kTop);
    const SampleResult expected = sample_row(c.logits, request);
    const RowReport& report = chosen.reports[as_size(i)];
    logprob_error = std::max(logprob_error, top_error(report.top, expected.top));
    if (expected.outcome == SampleOutcome::no_token) {
      farthest = std::max(farthest, found == kNoTokenLeft ? 0.0 : 1.0);
      continue;
    }
    if (expected.id == found) {
      logprob_error = std::max(logprob_error, error_of(chosen.logprobs[as_size(i)], expected.logprob));
      if (c.params.mirostat && c.params.temperature > 0.0f) {
        logprob_error = std::max(logprob_error, error_of(report.mirostat_mu, expected.mirostat_mu));
      }
      continue;
    }
    ++others;
    const double random = uniform(request.params.seed, request.draw);
    farthest = std::max(farthest, beyond(sampling_distribution(c.logits, request), found, random));
  }
  fixture.check(c.name, farthest <= kBoundary && logprob_error <= kLogprobBound,
                fmt::format("{} of {} others, {:.1e} beyond their share, log-probabilities {:.1e} off", others, kRows,
                            farthest, logprob_error));
}

}  // namespace

void test_edits(Fixture& fixture) {
  const auto peaked = random_values(20000, 3.0f, fixture.random());  // a cluster a row, where there are clusters
  std::vector<float> rounded = random_values(5000, 2.0f, fixture.random());
  for (float& logit : rounded) logit = std::round(logit);
  std::vector<float> far(2001, -90.0f);
  far[1234] = 20.0f;
  far[77] = -std::numeric_limits<float>::infinity();
  const SamplingParams greedy{.repeat_penalty = 1.3f, .presence_penalty = 0.4f, .frequency_penalty = 0.2f, .seed = 3};
  SamplingParams drawn = greedy;
  drawn.temperature = 0.8f;
  SamplingParams usual = drawn;
  usual.top_k = 40;
  usual.top_p = 0.95f;
  usual.min_p = 0.05f;
  usual.penalty_scope = PenaltyScope::recent;
  usual.penalty_window = 20;
  SamplingParams nucleus = drawn;
  nucleus.top_p = 0.9f;
  SamplingParams typical{.temperature = 0.9f, .typical_p = 0.8f, .seed = 21};
  SamplingParams typical_of_few = typical;
  typical_of_few.top_k = 300;
  typical_of_few.top_p = 0.9f;
  typical_of_few.min_p = 0.02f;
  typical_of_few.presence_penalty = 0.5f;
  const SamplingParams surprise{.temperature = 0.7f, .mirostat = true, .mirostat_tau = 4.0f, .seed = 22};
  using Named = std::pair<const char*, const std::vector<float>*>;
  for (const auto& [name, logits] : {Named{"peaked", &peaked}, Named{"rounded", &rounded}, Named{"far", &far}}) {
    const std::vector<TokenId> likely = likeliest(*logits);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<std::pair<TokenId, float>> bias = {
        {likely[3], 5.0f}, {likely[0], -kInfinity}, {likely[3], -2.5f},  {likely[1], 0.1f},       {likely[7], 3e38f},
        {1000, -4.0f},     {likely[7], 3e38f},      {likely[39], 1e-3f}, {likely[7], -kInfinity}, {1'000'000'000, 1.0f},
    };
    for (const auto& [how, params] : {std::pair{"greedy", greedy}, std::pair{"all", drawn}, std::pair{"usual", usual},
                                      std::pair{"top-p", nucleus}, std::pair{"typical", typical},
                                      std::pair{"typical of 300", typical_of_few}, std::pair{"mirostat", surprise}}) {
      SamplingParams biased = params;
      biased.logit_bias = bias;
      const std::string title = fmt::format("{}, {}", name, how);
      test_case(fixture, {title + ", penalties", *logits, params, false});
      test_case(fixture, {title + ", bias and penalties", *logits, biased, false});
      test_case(fixture, {title + ", mask, bias and penalties", *logits, biased, true});
      const SamplingParams only_mask{
          .temperature = params.temperature, .top_k = params.top_k, .top_p = params.top_p, .seed = 8};
      test_case(fixture, {title + ", mask", *logits, only_mask, true});
    }
  }
}

}  // namespace quarrel::cuda
