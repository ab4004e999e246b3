#include "cuda/unfused_attention.h"

#include <algorithm>

#include "base/as_size.h"
#include "cuda/unfused_softmax.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

// Numbers as the GEMMs take them.
DeviceBuffer uploaded(const std::vector<float>& numbers, bool halves) {
  if (!halves) return to_device(numbers);
  std::vector<std::uint16_t> rounded(numbers.size());
  std::ranges::transform(numbers, rounded.begin(), f32_to_f16);
  return to_device(rounded);
}

}  // namespace

UnfusedAttention::UnfusedAttention(const PrefillData& data, const PrefillCase& setting, bool halves)
    : setting_(setting),
      halves_(halves),
      rows_(static_cast<int>(data.rows())),
      context_(data.positions().back() + 1),
      scale_(data.scale()),
      queries_(uploaded(data.queries(), halves)),
      positions_(to_device(data.positions())),
      scores_(poisoned(as_size(rows_) * as_size(context_) * 4)),
      weights_(poisoned(halves ? as_size(rows_) * as_size(context_) * 2 : 1)),
      out_(poisoned(data.queries().size() * 4)) {
  const auto dim = as_size(setting.dim);
  const auto context = as_size(context_);
  std::vector<float> keys;
  std::vector<float> values(as_size(setting.kv_heads) * dim * context);
  for (int head = 0; head < setting.kv_heads; ++head) {
    for (const std::uint16_t key : data.keys_of(0, head)) keys.push_back(f16_to_f32(key));
    const std::vector<std::uint16_t> of_head = data.values_of(0, head);
    for (std::size_t i = 0; i < of_head.size(); ++i) {
      values[(as_size(head) * dim + i % dim) * context + i / dim] = f16_to_f32(of_head[i]);
    }
  }
  keys_ = uploaded(keys, halves);
  values_ = uploaded(values, halves);
}

void UnfusedAttention::scores_of(const LaunchContext& context, int head) const {
  const std::size_t bytes = halves_ ? 2 : 4;
  const auto kv_head = as_size(head / (setting_.heads / setting_.kv_heads));
  gemm_.run(context,
            {.tokens = rows_,
             .rows = context_,
             .columns = setting_.dim,
             .in_stride = setting_.heads * setting_.dim,
             .f32_in = !halves_},
            keys_.data() + kv_head * as_size(context_) * as_size(setting_.dim) * bytes,
            queries_.data() + as_size(head) * as_size(setting_.dim) * bytes, scores_.data(), scale_);
}

void UnfusedAttention::softmax_of(const LaunchContext& context) const {
  softmax_rows(context, {.scores = scores_.as<float>(),
                         .weights = halves_ ? weights_.data() : scores_.data(),
                         .positions = positions_.as<std::int32_t>(),
                         .rows = rows_,
                         .context = context_,
                         .halves = halves_});
}

void UnfusedAttention::values_of(const LaunchContext& context, int head) const {
  const std::size_t bytes = halves_ ? 2 : 4;
  const auto kv_head = as_size(head / (setting_.heads / setting_.kv_heads));
  gemm_.run(context,
            {.tokens = rows_,
             .rows = setting_.dim,
             .columns = context_,
             .out_stride = setting_.heads * setting_.dim,
             .f32_in = !halves_},
            values_.data() + kv_head * as_size(context_) * as_size(setting_.dim) * bytes,
            halves_ ? weights_.data() : scores_.data(), out_.as<float>() + as_size(head) * as_size(setting_.dim));
}

void UnfusedAttention::scores(const LaunchContext& context) const {
  for (int head = 0; head < setting_.heads; ++head) scores_of(context, head);
}

void UnfusedAttention::softmax(const LaunchContext& context) const {
  for (int head = 0; head < setting_.heads; ++head) softmax_of(context);
}

void UnfusedAttention::values(const LaunchContext& context) const {
  for (int head = 0; head < setting_.heads; ++head) values_of(context, head);
}

void UnfusedAttention::run(const LaunchContext& context) const {
  for (int head = 0; head < setting_.heads; ++head) {
    scores_of(context, head);
    softmax_of(context);
    values_of(context, head);
  }
}

std::vector<float> UnfusedAttention::results() const { return to_host(out_.as<float>(), out_.size() / sizeof(float)); }

double UnfusedAttention::score_bytes() const {
  const double numbers = static_cast<double>(setting_.heads) * rows_ * context_;
  return numbers * 2.0 * (4.0 + (halves_ ? 2.0 : 4.0));
}

}  // namespace quarrel::cuda
