// Tokens drawn from the likeliest ones: ours from logits in one go, with the chosen token's log-probability, and
// FlashInfer's softmax and draw. FlashInfer counts the share of top-p among all tokens, ours among those that top-k has
// left, so what ours may draw is among what FlashInfer may draw.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/logit_edits.h"
#include "base/as_size.h"
#include "cuda_peers/subjects.h"

namespace quarrel::cuda {
namespace {

constexpr int kTopK = 40;
constexpr float kTopP = 0.95f;
constexpr float kTemperature = 0.7f;

// Logits of so many rows, and all that is drawn with. How broad they are decides how often FlashInfer has to draw
// again.
class Draws {
 public:
  Draws(Fixture& fixture, int rows, int tokens, float deviation)
      : rows_(rows),
        tokens_(tokens),
        logits_(random_values(as_size(rows) * as_size(tokens), deviation, fixture.random())) {
    std::uniform_real_distribution<double> uniform;
    std::vector<TokenDraw> draws;
    for (int row = 0; row < rows; ++row) {
      draws.push_back(token_draw({.random = uniform(fixture.random()),
                                  .temperature = static_cast<double>(kTemperature),
                                  .top_k = kTopK,
                                  .top_p = kTopP}));
    }
    device_logits_ = to_device(logits_);
    draws_ = to_device(draws);
    targets_ = to_device(std::vector<std::int32_t>(as_size(rows), kChooseDrawn));
    ids_ = poisoned(as_size(rows) * 4);
    logprobs_ = poisoned(as_size(rows) * 4);
    probabilities_ = poisoned(device_logits_.size());
    const PeerDraw peer{.logits = device_logits_.as<float>(),
                        .probabilities = probabilities_.as<float>(),
                        .chosen = ids_.as<std::int32_t>(),
                        .rows = rows,
                        .tokens = tokens,
                        .top_k = kTopK,
                        .top_p = kTopP,
                        .temperature = kTemperature};
    softmax_ = flashinfer_softmax(peer);
    draw_ = flashinfer_draw(peer);
  }

  void ours(const LaunchContext& context) const {
    choose_tokens(context, {.logits = device_logits_.as<float>(),
                            .targets = targets_.as<std::int32_t>(),
                            .draws = draws_.as<TokenDraw>(),
                            .rows = rows_,
                            .vocabulary = tokens_,
                            .ids = ids_.as<std::int32_t>(),
                            .logprobs = logprobs_.as<float>()});
  }
  void softmax(const LaunchContext& context) const { softmax_(context); }
  void draw(const LaunchContext& context) const { draw_(context); }

  void check(Fixture& fixture, const std::string& what) const {
    constexpr int kCalls = 32;
    const std::vector<std::vector<double>> shares = exact_shares();
    ours(fixture.context());
    fixture.check(what + ", ours", drawn_beyond(shares) == 0, "all within the bounds");
    softmax(fixture.context());
    std::vector<double> all;
    for (const auto& row : shares) all.insert(all.end(), row.begin(), row.end());
    fixture.check(what + ", FlashInfer softmax", difference(to_host(probabilities_.as<float>(), all.size()), all),
                  kPeerBound);
    int beyond = 0;
    for (int i = 0; i < kCalls; ++i) {
      poison(ids_);
      draw(fixture.context());
      beyond += drawn_beyond(shares);
    }
    fixture.check(what + ", FlashInfer", beyond == 0, "all within the bounds");
  }

 private:
  std::vector<std::vector<double>> exact_shares() const {
    std::vector<std::vector<double>> shares;
    for (std::size_t row = 0; row < as_size(rows_); ++row) {
      const std::span<const float> logits(logits_.data() + row * as_size(tokens_), as_size(tokens_));
      const auto most = static_cast<double>(*std::ranges::max_element(logits));
      std::vector<double> weights;
      for (const float logit : logits) {
        weights.push_back(std::exp((static_cast<double>(logit) - most) / static_cast<double>(kTemperature)));
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (double& weight : weights) weight /= total;
      shares.push_back(std::move(weights));
    }
    return shares;
  }

  // How many of the tokens that were drawn last have too many likelier ones, or likelier ones of too large a share.
  int drawn_beyond(const std::vector<std::vector<double>>& shares) const {
    constexpr double kRounding = 1e-4;
    const auto ids = to_host(ids_.as<std::int32_t>(), as_size(rows_));
    int beyond = 0;
    for (std::size_t row = 0; row < ids.size(); ++row) {
      if (ids[row] < 0 || ids[row] >= tokens_) {
        ++beyond;
        continue;
      }
      int likelier = 0;
      double share = 0.0;
      for (const double each : shares[row]) {
        if (each <= shares[row][as_size(ids[row])]) continue;
        ++likelier;
        share += each;
      }
      if (likelier >= kTopK || share >= static_cast<double>(kTopP) + kRounding) ++beyond;
    }
    return beyond;
  }

  int rows_;
  int tokens_;
  std::vector<float> logits_;
  DeviceBuffer device_logits_, draws_, targets_, ids_, logprobs_, probabilities_;
  PeerCall softmax_, draw_;
};

void compare(Fixture& fixture, int rows, int tokens, const char* shape, float deviation) {
  const Draws draws(fixture, rows, tokens, deviation);
  const std::string what = fmt::format("{} of {} tokens, {}", rows, tokens, shape);
  draws.check(fixture, what);
  if (!fixture.times()) return;
  const auto time = [&](const char* who, const auto& call) {
    fixture.report_bytes(
        fmt::format("{}, {}", what, who),
        fixture.microseconds(32, fixture.context(), [&](int, const LaunchContext& context) { call(context); }),
        4.0 * rows * tokens);
  };
  time("ours", [&](const LaunchContext& context) { draws.ours(context); });
  time("FlashInfer", [&](const LaunchContext& context) {
    draws.softmax(context);
    draws.draw(context);
  });
  time("FlashInfer without softmax", [&](const LaunchContext& context) { draws.draw(context); });
}

}  // namespace

void compare_draws(Fixture& fixture) {
  for (const int tokens : {32000, 201088}) {
    for (const int rows : {1, 16}) {
      compare(fixture, rows, tokens, "peaked", 6.0f);
      compare(fixture, rows, tokens, "broad", 3.0f);
    }
  }
}

}  // namespace quarrel::cuda
