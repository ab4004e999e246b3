#include "backend/op_work.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/as_size.h"

namespace quarrel {

OpWork& OpWork::operator+=(const OpWork& more) noexcept {
  bytes += more.bytes;
  macs += more.macs;
  quantised_macs += more.quantised_macs;
  return *this;
}

void add_work(OpTime& time, const OpWork& work) noexcept {
  time.bytes += work.bytes;
  time.macs += work.macs;
  time.quantised_macs += work.quantised_macs;
}

OpWork gemm_work(const Weight& weight, const WeightSize& size, std::uint64_t rows, std::uint64_t read) noexcept {
  const std::uint64_t macs = rows * as_size(weight.rows) * as_size(weight.columns);
  return {.bytes = read * size.bytes, .macs = macs, .quantised_macs = size.quantised ? macs : 0};
}

OpWork embedding_work(const Weight& table, const WeightSize& size, std::uint64_t rows) noexcept {
  return {.bytes = rows * (size.bytes / as_size(table.rows))};
}

OpWork attention_work(const AttendOp& op, std::span<const StepRow> rows, std::span<const std::int32_t> lengths,
                      std::size_t element_bytes) {
  struct Span {
    std::int32_t begin = std::numeric_limits<std::int32_t>::max();
    std::int32_t end = 0;
  };
  std::vector<Span> spans(lengths.size());  // the positions that some row of a sequence sees
  std::uint64_t seen = 0;
  for (const StepRow& row : rows) {
    if (row.sequence < 0) continue;
    const std::size_t sequence = as_size(row.sequence);
    const std::int32_t begin = op.window > 0 ? std::max(0, row.position - op.window + 1) : 0;
    const std::int32_t end = op.causal ? row.position + 1 : lengths[sequence];
    seen += as_size(end - begin);
    spans[sequence].begin = std::min(spans[sequence].begin, begin);
    spans[sequence].end = std::max(spans[sequence].end, end);
  }
  std::uint64_t read = 0;
  for (const Span& span : spans) {
    if (span.begin < span.end) read += as_size(span.end - span.begin);
  }
  const std::uint64_t values = as_size(op.key_dim + op.value_dim);
  return {.bytes = read * as_size(op.kv_heads) * values * element_bytes, .macs = seen * as_size(op.heads) * values};
}

OpWork convolution_work(const SsmOp& op, std::uint64_t history, std::uint64_t sequences, std::uint64_t rows) noexcept {
  const std::uint64_t taps = as_size(op.conv_width);
  const std::uint64_t channels = taps > 1 ? history / (taps - 1) : 0;
  return {.bytes = sequences * history * sizeof(float), .macs = rows * channels * taps};
}

OpWork scan_work(const SsmOp& op, std::uint64_t sequences, std::uint64_t rows) noexcept {
  const std::uint64_t state = as_size(op.inner) * as_size(op.state);
  return {.bytes = sequences * state * sizeof(float), .macs = 3 * rows * state};
}

std::string_view profile_name(const LinearOp& op) noexcept {
  switch (op.sublayer) {
    case SublayerKind::attention: return "attention out";
    case SublayerKind::feed_forward: return "down";
    case SublayerKind::ssm: return op.end.x.valid() ? "ssm out" : "ssm in";
    case SublayerKind::other: break;
  }
  return "other";
}

}  // namespace quarrel
