// Attention of single rows over the same paged cache: ours, from F32 and to F32, and FlashInfer's without and with
// tensor cores, F16 throughout. Several copies take turns, so that short contexts alone stay in the second-level cache.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/decode_attention.h"
#include "base/as_size.h"
#include "cuda/prefill_data.h"
#include "cuda_peers/subjects.h"

namespace quarrel::cuda {
namespace {

constexpr PrefillCase kSetting{.heads = 32, .kv_heads = 8, .dim = kPeerHeadDim};

// Texts of which all but the last row have been computed before.
class Rows {
 public:
  Rows(Fixture& fixture, int rows, int context)
      : data_(fixture, kSetting, std::vector<std::int32_t>(as_size(rows), context), context - 1),
        workspace_(poisoned(decode_attention_workspace(rows, kSetting.heads, kSetting.dim))),
        arrivals_(to_device(std::vector<int>(as_size(rows * kSetting.kv_heads), 0))),
        q_(to_device(to_halves(data_.queries()))),
        out_(poisoned(q_.size())) {
    const PrefillAttentionOp op = data_.op();
    const PeerRows peer{.q = q_.as<std::uint16_t>(),
                        .keys = op.kv.keys,
                        .values = op.kv.values,
                        .out = out_.as<std::uint16_t>(),
                        .tables = op.rows.tables,
                        .rows = rows,
                        .context = context,
                        .page_size = kKvBlockTokens,
                        .heads = kSetting.heads,
                        .kv_heads = kSetting.kv_heads,
                        .scale = data_.scale()};
    without_mma_ = flashinfer_rows(peer, fixture.context());
    with_mma_ = flashinfer_rows_mma(peer, fixture.context());
  }

  void ours(const LaunchContext& context) const {
    const PrefillAttentionOp op = data_.op();
    StepRows rows = op.rows;
    rows.first_new = rows.positions;
    decode_attention(context, {.rows = rows,
                               .kv = op.kv,
                               .q = op.q,
                               .out = op.out,
                               .heads = op.heads,
                               .scale = op.scale,
                               .workspace = workspace_.data(),
                               .arrivals = arrivals_.as<int>()});
  }
  void without_mma(const LaunchContext& context) const { without_mma_(context); }
  void with_mma(const LaunchContext& context) const { with_mma_(context); }

  void check(Fixture& fixture, const std::string& what) const {
    ours(fixture.context());
    const std::vector<float> results = data_.results();
    check_peer(fixture, what + ", FlashInfer", without_mma_, out_, results);
    check_peer(fixture, what + ", FlashInfer mma", with_mma_, out_, results);
  }

 private:
  PrefillData data_;
  DeviceBuffer workspace_, arrivals_, q_, out_;
  PeerCall without_mma_, with_mma_;
};

void compare(Fixture& fixture, int rows, int context) {
  const double bytes = 4.0 * rows * context * kSetting.kv_heads * kSetting.dim;
  const int count = fixture.times() ? std::clamp(static_cast<int>(3e8 / bytes), 1, 8) : 1;
  std::vector<Rows> copies;
  copies.reserve(as_size(count));
  for (int i = 0; i < count; ++i) copies.emplace_back(fixture, rows, context);
  const std::string what = fmt::format("{} rows, context {}", rows, context);
  copies.front().check(fixture, what);
  if (!fixture.times()) return;
  const auto time = [&](const char* who, void (Rows::*call)(const LaunchContext&) const) {
    const auto launch = [&](int i, const LaunchContext& launches) { (copies[as_size(i % count)].*call)(launches); };
    const double overlapped = fixture.microseconds(16, fixture.context(), launch);
    const double alone = fixture.microseconds(16, fixture.context_without_overlap(), launch);
    fixture.report_bytes(fmt::format("{}, {} (alone {:.2f} us)", what, who, alone), overlapped, bytes);
  };
  time("ours", &Rows::ours);
  time("FlashInfer", &Rows::without_mma);
  time("FlashInfer mma", &Rows::with_mma);
}

}  // namespace

void compare_rows(Fixture& fixture) {
  prepare_decode_attention(fixture.context());
  for (const int context : {128, 512, 4096, 16384}) compare(fixture, 1, context);
  compare(fixture, 8, 1024);
  compare(fixture, 16, 4096);
}

}  // namespace quarrel::cuda
