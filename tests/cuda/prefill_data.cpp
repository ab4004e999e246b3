#include "cuda/prefill_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/as_size.h"
#include "cuda/extreme_numbers.h"
#include "quant/half.h"

namespace quarrel::cuda {

PrefillData::PrefillData(Fixture& fixture, const PrefillCase& setting, const std::vector<std::int32_t>& lengths,
                         int old)
    : setting_(setting), lengths_(lengths) {
  block_ = as_size(setting.kv_heads * kKvBlockTokens * setting.dim);
  stride_ = (std::ranges::max(lengths) + kKvBlockTokens - 1) / kKvBlockTokens;
  tables_.resize(lengths.size() * as_size(stride_));
  std::iota(tables_.begin(), tables_.end(), 0);
  std::ranges::shuffle(tables_, fixture.random());
  keys_.assign(tables_.size() * block_, 0x7e00);
  values_.assign(tables_.size() * block_, 0x7e00);
  std::minstd_rand fast(static_cast<unsigned>(fixture.random()()));
  const auto uniform = [&fast] { return (static_cast<float>(fast()) * 9.3132e-10f - 1.0f) * 1.7320508f; };
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    for (int j = 0; j < lengths[s]; ++j) {
      for (int head = 0; head < setting.kv_heads; ++head) {
        const float key = setting.extremes ? ExtremeNumbers()(fixture.random()) : 0.0f;
        for (std::size_t i = 0; i < as_size(setting.dim); ++i) {
          keys_[place(s, j, head) + i] = f32_to_f16(setting.extremes ? key : uniform());
          const float value = setting.extremes ? ExtremeNumbers()(fixture.random()) : uniform();
          values_[place(s, j, head) + i] = f32_to_f16(value);
        }
      }
      if (j < old) continue;
      if (j == old || tiles_.back().count == kPrefillTileRows) {
        tiles_.push_back({.first = static_cast<std::int32_t>(positions_.size()), .count = 0});
      }
      ++tiles_.back().count;
      positions_.push_back(j);
      sequences_.push_back(static_cast<std::int32_t>(s));
    }
  }
  q_ = random_values(positions_.size() * width(), 1.0f, fixture.random());
  if (setting.extremes) std::ranges::fill(q_, 1.0f);
  if (setting.sinks) sinks_ = random_values(as_size(setting.heads), 2.0f, fixture.random());
  device_sinks_ = to_device(sinks_);
  device_positions_ = to_device(positions_);
  device_sequences_ = to_device(sequences_);
  device_tables_ = to_device(tables_);
  device_lengths_ = to_device(lengths_);
  device_tiles_ = to_device(tiles_);
  device_keys_ = to_device(keys_);
  device_values_ = to_device(values_);
  device_q_ = to_device(q_);
  out_ = poisoned(q_.size() * 4);
}

PrefillAttentionOp PrefillData::op() const {
  const int width = setting_.heads * setting_.dim;
  return {.rows = {.positions = device_positions_.as<std::int32_t>(),
                   .sequences = device_sequences_.as<std::int32_t>(),
                   .tables = device_tables_.as<std::int32_t>(),
                   .table_stride = stride_,
                   .count = static_cast<int>(positions_.size()),
                   .lengths = device_lengths_.as<std::int32_t>()},
          .tiles = device_tiles_.as<PrefillTile>(),
          .tile_count = static_cast<int>(tiles_.size()),
          .kv = {.keys = device_keys_.as<std::uint16_t>(),
                 .values = device_values_.as<std::uint16_t>(),
                 .key_block_stride = static_cast<std::int64_t>(block_),
                 .value_block_stride = static_cast<std::int64_t>(block_),
                 .heads = setting_.kv_heads,
                 .dim = setting_.dim},
          .q = device_q_.as<float>(),
          .out = out_.as<float>(),
          .q_stride = width,
          .out_stride = width,
          .heads = setting_.heads,
          .scale = scale(),
          .soft_cap = setting_.soft_cap,
          .window = setting_.window,
          .causal = setting_.causal,
          .sinks = setting_.sinks ? device_sinks_.as<float>() : nullptr};
}

float PrefillData::scale() const { return 1.0f / std::sqrt(static_cast<float>(setting_.dim)); }

std::vector<float> PrefillData::results() const { return to_host(out_.as<float>(), q_.size()); }

double PrefillData::operations() const {
  double seen = 0.0;
  for (std::size_t r = 0; r < rows(); ++r) seen += end(r) - begin(r);
  return 4.0 * seen * setting_.heads * setting_.dim;
}

std::vector<double> PrefillData::exact(std::size_t r) const {
  const std::size_t dim = as_size(setting_.dim);
  const std::size_t s = as_size(sequences_[r]);
  std::vector<double> out(width());
  for (int head = 0; head < setting_.heads; ++head) {
    const int kv_head = head / (setting_.heads / setting_.kv_heads);
    const float* query = q_.data() + r * width() + as_size(head) * dim;
    double* sums = out.data() + as_size(head) * dim;
    std::vector<double> scores;
    double most = setting_.sinks ? static_cast<double>(sinks_[as_size(head)]) : -1e300;
    for (int j = begin(r); j < end(r); ++j) {
      const std::size_t at = place(s, j, kv_head);
      double score = 0.0;
      for (std::size_t i = 0; i < dim; ++i) {
        score += static_cast<double>(query[i]) * static_cast<double>(f16_to_f32(keys_[at + i]));
      }
      score *= static_cast<double>(scale());
      const auto cap = static_cast<double>(setting_.soft_cap);
      scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
      most = std::max(most, scores.back());
    }
    double total = setting_.sinks ? std::exp(static_cast<double>(sinks_[as_size(head)]) - most) : 0.0;
    for (int j = begin(r); j < end(r); ++j) {
      const double weight = std::exp(scores[as_size(j - begin(r))] - most);
      total += weight;
      const std::size_t at = place(s, j, kv_head);
      for (std::size_t i = 0; i < dim; ++i) sums[i] += weight * static_cast<double>(f16_to_f32(values_[at + i]));
    }
    for (std::size_t i = 0; i < dim; ++i) sums[i] /= total;
  }
  return out;
}

int PrefillData::begin(std::size_t r) const {
  return setting_.window > 0 ? std::max(0, positions_[r] - setting_.window + 1) : 0;
}

int PrefillData::end(std::size_t r) const {
  return setting_.causal ? positions_[r] + 1 : lengths_[as_size(sequences_[r])];
}

std::size_t PrefillData::place(std::size_t s, int position, int head) const {
  const auto block = as_size(tables_[s * as_size(stride_) + as_size(position / kKvBlockTokens)]);
  return block * block_ + as_size((head * kKvBlockTokens + position % kKvBlockTokens) * setting_.dim);
}

std::vector<std::uint16_t> PrefillData::cached(const std::vector<std::uint16_t>& cache, std::size_t text,
                                               int kv_head) const {
  std::vector<std::uint16_t> numbers;
  for (int position = 0; position < lengths_[text]; ++position) {
    const auto first = cache.begin() + static_cast<std::ptrdiff_t>(place(text, position, kv_head));
    numbers.insert(numbers.end(), first, first + setting_.dim);
  }
  return numbers;
}

}  // namespace quarrel::cuda
