// Attention of single rows over a paged cache against sums in double: lengths around the ends of blocks and splits,
// windows, sinks, soft caps, padding, numbers at the edges; then times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/register_gemm.h"
#include "base/as_size.h"
#include "cuda/extreme_numbers.h"
#include "cuda/fixture.h"
#include "quant/half.h"

namespace quarrel::cuda {
namespace {

constexpr double kBound = 1e-8;           // scores in the hundreds stand at 1e-9, others at 1e-13
constexpr double kBoundManyHeads = 1e-6;  // more than eight heads a group: no residuals

struct AttentionCase {
  int heads = 32;
  int kv_heads = 8;
  int dim = 128;
  int window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;
  float size = 1.0f;      // of keys and queries
  bool extremes = false;  // keys and values of the largest numbers and the smallest
  int context = 0;        // what the kernel is told that there may be; 0: it does not know
};

// A cache with a sequence a row, its blocks in random order, and NaN wherever nobody may look.
class AttentionData {
 public:
  AttentionData(Fixture& fixture, const AttentionCase& setting, const std::vector<std::int32_t>& positions)
      : setting_(setting), positions_(positions) {
    int blocks = 1;
    for (const int position : positions) {
      stride_ = std::max(stride_, position / kKvBlockTokens + 1);
      if (position >= 0) blocks += position / kKvBlockTokens + 1;
    }
    std::vector<std::int32_t> order(as_size(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, fixture.random());
    tables_.assign(positions.size() * as_size(stride_), -1);
    block_ = as_size(setting.kv_heads * kKvBlockTokens * setting.dim);
    keys_.assign(as_size(blocks) * block_, 0x7e00);
    values_.assign(as_size(blocks) * block_, 0x7e00);
    std::size_t next = 0;
    // Uniform with deviation 1, from a generator fast enough for long contexts.
    std::minstd_rand fast(static_cast<unsigned>(fixture.random()()));
    const auto uniform = [&fast] { return (static_cast<float>(fast()) * 9.3132e-10f - 1.0f) * 1.7320508f; };
    for (std::size_t r = 0; r < positions.size(); ++r) {
      sequences_.push_back(positions[r] < 0 ? -1 : static_cast<std::int32_t>(r));
      for (int j = 0; j <= positions[r]; ++j) {
        if (j % kKvBlockTokens == 0) tables_[r * as_size(stride_) + as_size(j / kKvBlockTokens)] = order[next++];
        if (setting.window > 0 && positions[r] - j >= setting.window) continue;
        for (int head = 0; head < setting.kv_heads; ++head) {
          const std::size_t at = place(r, j, head);
          const float key = setting.extremes ? ExtremeNumbers()(fixture.random()) : 0.0f;
          for (std::size_t i = 0; i < as_size(setting.dim); ++i) {
            keys_[at + i] = f32_to_f16_saturating(setting.extremes ? key : setting.size * uniform());
            values_[at + i] = f32_to_f16(setting.extremes ? ExtremeNumbers()(fixture.random()) : uniform());
          }
        }
      }
    }
    q_ = random_values(positions.size() * as_size(setting.heads * setting.dim), setting.size, fixture.random());
    if (setting.extremes) std::ranges::fill(q_, 1.0f);
    if (setting.sinks) sinks_ = random_values(as_size(setting.heads), 2.0f, fixture.random());
    device_positions_ = to_device(positions_);
    device_sequences_ = to_device(sequences_);
    device_tables_ = to_device(tables_);
    device_keys_ = to_device(keys_);
    device_values_ = to_device(values_);
    device_q_ = to_device(q_);
    device_sinks_ = to_device(sinks_);
    out_ = poisoned(q_.size() * 4);
    workspace_ = poisoned(decode_attention_workspace(static_cast<int>(positions.size()), setting.heads, setting.dim));
    arrivals_ = to_device(std::vector<int>(positions.size() * as_size(setting.kv_heads), 0));
  }

  DecodeAttentionOp op() const {
    return {.rows = {.positions = device_positions_.as<std::int32_t>(),
                     .sequences = device_sequences_.as<std::int32_t>(),
                     .first_new = device_positions_.as<std::int32_t>(),
                     .tables = device_tables_.as<std::int32_t>(),
                     .table_stride = stride_,
                     .count = static_cast<int>(positions_.size())},
            .kv = {.keys = device_keys_.as<std::uint16_t>(),
                   .values = device_values_.as<std::uint16_t>(),
                   .key_block_stride = static_cast<std::int64_t>(block_),
                   .value_block_stride = static_cast<std::int64_t>(block_),
                   .heads = setting_.kv_heads,
                   .dim = setting_.dim},
            .q = device_q_.as<float>(),
            .out = out_.as<float>(),
            .heads = setting_.heads,
            .scale = scale(),
            .soft_cap = setting_.soft_cap,
            .window = setting_.window,
            .context = setting_.context,
            .sinks = setting_.sinks ? device_sinks_.as<float>() : nullptr,
            .workspace = workspace_.data(),
            .arrivals = arrivals_.as<int>()};
  }

  std::vector<float> results() const { return to_host(out_.as<float>(), q_.size()); }

  std::vector<double> exact(std::size_t r) const {
    const std::size_t dim = as_size(setting_.dim);
    std::vector<double> out(as_size(setting_.heads) * dim);
    const int begin = setting_.window > 0 ? std::max(0, positions_[r] - setting_.window + 1) : 0;
    parallel_for(setting_.heads, [&](int head) {
      const int kv_head = head / (setting_.heads / setting_.kv_heads);
      const float* query = q_.data() + (r * as_size(setting_.heads) + as_size(head)) * dim;
      std::vector<double> scores;
      double best =
          sinks_.empty() ? -std::numeric_limits<double>::infinity() : static_cast<double>(sinks_[as_size(head)]);
      for (int j = begin; j <= positions_[r]; ++j) {
        const std::size_t at = place(r, j, kv_head);
        double score = 0.0;
        for (std::size_t i = 0; i < dim; ++i) {
          score += static_cast<double>(query[i]) * static_cast<double>(f16_to_f32(keys_[at + i]));
        }
        score *= static_cast<double>(scale());
        const auto cap = static_cast<double>(setting_.soft_cap);
        if (cap > 0.0) score = cap * std::tanh(score / cap);
        scores.push_back(score);
        best = std::max(best, score);
      }
      double total = sinks_.empty() ? 0.0 : std::exp(static_cast<double>(sinks_[as_size(head)]) - best);
      double* sums = out.data() + as_size(head) * dim;
      for (int j = begin; j <= positions_[r]; ++j) {
        const double weight = std::exp(scores[as_size(j - begin)] - best);
        total += weight;
        const std::size_t at = place(r, j, kv_head);
        for (std::size_t i = 0; i < dim; ++i) sums[i] += weight * static_cast<double>(f16_to_f32(values_[at + i]));
      }
      for (std::size_t i = 0; i < dim; ++i) sums[i] /= total;
    });
    return out;
  }

 private:
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(setting_.dim)); }

  std::size_t place(std::size_t r, int position, int head) const {
    const auto block = as_size(tables_[r * as_size(stride_) + as_size(position / kKvBlockTokens)]);
    return block * block_ + as_size((head * kKvBlockTokens + position % kKvBlockTokens) * setting_.dim);
  }

  AttentionCase setting_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> sequences_;
  std::vector<std::int32_t> tables_;
  int stride_ = 1;
  std::size_t block_ = 0;
  std::vector<std::uint16_t> keys_;
  std::vector<std::uint16_t> values_;
  std::vector<float> q_;
  std::vector<float> sinks_;
  DeviceBuffer device_positions_, device_sequences_, device_tables_, device_keys_, device_values_, device_q_,
      device_sinks_, out_, workspace_, arrivals_;
};

void test_case(Fixture& fixture, const AttentionCase& setting, const std::vector<std::int32_t>& positions) {
  if (!can_attend(fixture.context(), setting.heads, setting.kv_heads, setting.dim)) return;
  const AttentionData data(fixture, setting, positions);
  decode_attention(fixture.context(), data.op());
  const auto first = data.results();
  const int rows = static_cast<int>(positions.size());
  const std::size_t width = as_size(setting.heads * setting.dim);
  const DeviceBuffer image = poisoned(register_image_numbers(rows, static_cast<int>(width)) * 2);
  DecodeAttentionOp again = data.op();
  again.image = image.as<std::uint16_t>();
  again.image_rows = image_rows(rows);
  decode_attention(fixture.context(), again);
  const auto second = data.results();
  const auto halves =
      rows_of_image(to_host(image.as<std::uint16_t>(), image.size() / 2), rows, static_cast<int>(width));
  const std::string name = fmt::format("attention {}/{} heads of {}{}{}{}{}{}", setting.heads, setting.kv_heads,
                                       setting.dim, setting.window > 0 ? fmt::format(" window {}", setting.window) : "",
                                       setting.soft_cap > 0.0f ? " soft cap" : "", setting.sinks ? " sinks" : "",
                                       setting.size > 1.0f ? " large"
                                       : setting.extremes  ? " extremes"
                                                           : "",
                                       setting.context > 0 ? fmt::format(" context {}", setting.context) : "");
  Difference worst;
  bool padding_kept = true;
  bool same_halves = true;
  for (std::size_t r = 0; r < positions.size(); ++r) {
    const std::span<const float> results(first.data() + r * width, width);
    if (positions[r] < 0) {
      padding_kept = padding_kept && std::ranges::all_of(results, [](float x) { return std::isnan(x); });
      continue;
    }
    for (std::size_t i = 0; i < width; ++i) {
      same_halves = same_halves && halves[r * width + i] == f32_to_f16_saturating(results[i]);
    }
    const Difference found = difference(results, data.exact(r));
    if (!(found.nmse <= worst.nmse)) worst = found;
  }
  fixture.check(name, worst, setting.heads / setting.kv_heads > 8 ? kBoundManyHeads : kBound);
  fixture.check(name + ", again", std::memcmp(first.data(), second.data(), first.size() * 4) == 0, "the same bits");
  fixture.check(name + ", padding", padding_kept, "untouched");
  fixture.check(name + ", image", same_halves, "the same in F16");
}

void time_case(Fixture& fixture, const AttentionCase& setting, int rows, int position) {
  std::vector<AttentionData> copies;
  const double bytes = 4.0 * rows * (position + 1) * setting.kv_heads * setting.dim;
  const int count = std::clamp(static_cast<int>(3e8 / bytes), 1, 8);
  for (int i = 0; i < count; ++i)
    copies.emplace_back(fixture, setting, std::vector<std::int32_t>(as_size(rows), position));
  const auto call = [&](int i, const LaunchContext& context) {
    decode_attention(context, copies[as_size(i % count)].op());
  };
  const double overlapped = fixture.microseconds(16, fixture.context(), call);
  const double alone = fixture.microseconds(16, fixture.context_without_overlap(), call);
  fixture.report_bytes(fmt::format("attention {}/{}x{} rows {:2} context {:5} (alone {:.2f} us)", setting.heads,
                                   setting.kv_heads, setting.dim, rows, position + 1, alone),
                       overlapped, bytes);
}

}  // namespace

void test_attention(Fixture& fixture) {
  prepare_decode_attention(fixture.context());
  const std::vector<std::int32_t> positions{0, 15, 16, 63, 64, -1, 500, 2047, 2048, 4999};
  test_case(fixture, {}, positions);
  test_case(fixture, {.heads = 12, .kv_heads = 4, .dim = 64, .sinks = true}, positions);
  test_case(fixture, {.heads = 32, .kv_heads = 2, .dim = 64, .window = 128, .sinks = true}, positions);
  test_case(fixture, {.heads = 4, .kv_heads = 2, .dim = 256, .window = 100, .soft_cap = 30.0f}, positions);
  test_case(fixture, {.heads = 16, .kv_heads = 16, .dim = 128, .size = 40.0f}, positions);
  test_case(fixture, {.extremes = true}, positions);
  test_case(fixture, {.heads = 12, .kv_heads = 4, .dim = 64, .window = 30, .sinks = true, .extremes = true}, positions);
  test_case(fixture, {.heads = 8, .kv_heads = 2, .dim = 128}, {32767, 4095});
  // Shorter rows may have more splits than the longest one.
  for (const int context : {1000, 8192, 10000, 32768}) {
    std::vector<std::int32_t> within{0, 63, 64, 999};
    for (int position = 2000; position < context; position += 1500) within.push_back(position);
    within.push_back(context - 1);
    test_case(fixture, {.heads = 8, .kv_heads = 2, .dim = 64, .context = context}, within);
  }
  test_case(fixture, {.heads = 8, .kv_heads = 2, .dim = 64, .window = 4096, .soft_cap = 30.0f, .sinks = true},
            {32767, 4095, 5000});
  if (!fixture.times()) return;
  for (const int context : {128, 512, 4096, 16384}) time_case(fixture, {}, 1, context - 1);
  time_case(fixture, {}, 8, 1023);
  time_case(fixture, {}, 16, 4095);
}

}  // namespace quarrel::cuda
