// Attention of one prompt: ours over a paged cache, from F32 and to F32, and FlashInfer's for Hopper, F16 throughout,
// over the same cache and on keys and values that follow each other.
#include <fmt/format.h>

#include <utility>

#include "base/as_size.h"
#include "cuda/prefill_data.h"
#include "cuda_peers/subjects.h"

namespace quarrel::cuda {
namespace {

// [positions][heads][dim] of what the cache has by head.
std::vector<std::uint16_t> by_position(const PrefillCase& setting, int rows, const auto& of_head) {
  const std::size_t dim = as_size(setting.dim);
  const std::size_t heads = as_size(setting.kv_heads);
  std::vector<std::uint16_t> numbers(as_size(rows) * heads * dim);
  for (std::size_t head = 0; head < heads; ++head) {
    const std::vector<std::uint16_t> from = of_head(static_cast<int>(head));
    for (std::size_t i = 0; i < from.size(); ++i) numbers[(i / dim * heads + head) * dim + i % dim] = from[i];
  }
  return numbers;
}

void compare(Fixture& fixture, int rows) {
  const PrefillCase setting{.heads = 32, .kv_heads = 8, .dim = kPeerHeadDim};
  const PrefillData data(fixture, setting, {rows}, 0);
  const PeerCall ours = [&](const LaunchContext& context) { prefill_attention(context, data.op()); };
  const DeviceBuffer q = to_device(to_halves(data.queries()));
  const DeviceBuffer keys = to_device(by_position(setting, rows, [&](int head) { return data.keys_of(0, head); }));
  const DeviceBuffer values = to_device(by_position(setting, rows, [&](int head) { return data.values_of(0, head); }));
  const DeviceBuffer out = poisoned(q.size());
  const PeerPrompt prompt{.q = q.as<std::uint16_t>(),
                          .keys = keys.as<std::uint16_t>(),
                          .values = values.as<std::uint16_t>(),
                          .out = out.as<std::uint16_t>(),
                          .rows = rows,
                          .heads = setting.heads,
                          .kv_heads = setting.kv_heads,
                          .scale = data.scale()};
  const PrefillAttentionOp op = data.op();
  PeerPrompt paged = prompt;
  paged.keys = op.kv.keys;
  paged.values = op.kv.values;
  paged.table = op.rows.tables;
  paged.page_size = kKvBlockTokens;
  const std::vector<std::pair<const char*, PeerCall>> peers{
      {"FlashInfer", flashinfer_prompt(prompt)},
      {"FlashInfer planned", flashinfer_planned_prompt(prompt, fixture.context())},
      {"FlashInfer planned, paged", flashinfer_paged_prompt(paged, fixture.context())}};
  ours(fixture.context());
  const std::vector<float> results = data.results();
  const std::string what = fmt::format("prompt of {}, {}/{}x{}", rows, setting.heads, setting.kv_heads, setting.dim);
  for (const auto& [who, call] : peers) check_peer(fixture, fmt::format("{}, {}", what, who), call, out, results);
  if (!fixture.times()) return;
  const auto time = [&](const char* who, const PeerCall& call) {
    fixture.report_operations(fmt::format("{}, {}", what, who),
                              fixture.microseconds(8, fixture.context_without_overlap(),
                                                   [&](int, const LaunchContext& context) { call(context); }),
                              data.operations());
  };
  time("ours", ours);
  for (const auto& [who, call] : peers) time(who, call);
}

}  // namespace

void compare_prompts(Fixture& fixture) {
  prepare_prefill_attention();
  for (const int rows : {2048, 8192}) compare(fixture, rows);
}

}  // namespace quarrel::cuda
