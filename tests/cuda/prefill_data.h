// Prompts and texts over a paged cache, for attention of many rows: rows of several texts one after the other, the last
// ones of each, all of which a step computes at once.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/prefill_attention.h"
#include "cuda/fixture.h"

namespace quarrel::cuda {

struct PrefillCase {
  int heads = 12;
  int kv_heads = 4;
  int dim = 64;
  int window = 0;
  bool causal = true;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool extremes = false;
};

class PrefillData {
 public:
  // `lengths` of the texts; `old` positions of each were computed before.
  PrefillData(Fixture& fixture, const PrefillCase& setting, const std::vector<std::int32_t>& lengths, int old);

  PrefillAttentionOp op() const;
  std::size_t rows() const { return positions_.size(); }
  std::size_t width() const { return static_cast<std::size_t>(setting_.heads * setting_.dim); }
  float scale() const;
  std::vector<float> results() const;
  // Products of queries and keys, and of weights and values, without the masked ones.
  double operations() const;
  std::vector<double> exact(std::size_t row) const;

  const std::vector<float>& queries() const { return q_; }
  const std::vector<std::int32_t>& positions() const { return positions_; }
  // Of one head of a text, [positions][dim].
  std::vector<std::uint16_t> keys_of(std::size_t text, int kv_head) const { return cached(keys_, text, kv_head); }
  std::vector<std::uint16_t> values_of(std::size_t text, int kv_head) const { return cached(values_, text, kv_head); }

 private:
  int begin(std::size_t row) const;
  int end(std::size_t row) const;
  std::size_t place(std::size_t text, int position, int head) const;
  std::vector<std::uint16_t> cached(const std::vector<std::uint16_t>& cache, std::size_t text, int kv_head) const;

  PrefillCase setting_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> sequences_;
  std::vector<std::int32_t> tables_;
  std::vector<PrefillTile> tiles_;
  int stride_ = 1;
  std::size_t block_ = 0;
  std::vector<std::uint16_t> keys_;
  std::vector<std::uint16_t> values_;
  std::vector<float> q_;
  std::vector<float> sinks_;
  DeviceBuffer device_positions_, device_sequences_, device_tables_, device_lengths_, device_tiles_, device_keys_,
      device_values_, device_q_, device_sinks_, out_;
};

}  // namespace quarrel::cuda
