// Attention of prompts and texts over a paged cache against sums in double: lengths around the ends of tiles and
// blocks, windows, sinks, soft caps, numbers at the edges; then times, beside those of scores, softmax and values one
// after the other.
#include <fmt/format.h>

#include <algorithm>

#include "base/as_size.h"
#include "cuda/fixture.h"
#include "cuda/prefill_data.h"
#include "cuda/unfused_attention.h"

namespace quarrel::cuda {
namespace {

constexpr double kBound = 1e-6;

// `old` positions of each text were computed before.
void test_prefill(Fixture& fixture, const PrefillCase& setting,
                  const std::vector<std::int32_t>& lengths = {300, 64, 41, 129}, int old = 40) {
  const PrefillData data(fixture, setting, lengths, old);
  prefill_attention(fixture.context(), data.op());
  const auto results = data.results();
  std::vector<double> exact(results.size());
  parallel_for(static_cast<int>(data.rows()), [&](int row) {
    const std::size_t r = as_size(row);
    std::ranges::copy(data.exact(r), exact.begin() + static_cast<std::ptrdiff_t>(r * data.width()));
  });
  fixture.check(
      fmt::format("{} {}/{} heads of {}{}{}{}{}{}", setting.causal ? "prompts" : "texts", setting.heads,
                  setting.kv_heads, setting.dim, setting.window > 0 ? fmt::format(" window {}", setting.window) : "",
                  setting.soft_cap > 0.0f ? " soft cap" : "", setting.sinks ? " sinks" : "",
                  setting.extremes ? " extremes" : "", old > 40 ? fmt::format(" from {}", old) : ""),
      difference(results, exact), kBound);
}

void time_prefill(Fixture& fixture, const PrefillCase& setting, const std::vector<std::int32_t>& lengths) {
  const PrefillData data(fixture, setting, lengths, 0);
  const double time = fixture.microseconds(
      8, fixture.context(), [&](int, const LaunchContext& context) { prefill_attention(context, data.op()); });
  fixture.report_operations(fmt::format("{} {}/{}x{}, {} of {}", setting.causal ? "prompts" : "texts", setting.heads,
                                        setting.kv_heads, setting.dim, lengths.size(), lengths.front()),
                            time, data.operations());
}

// What a step of a long prompt takes for its attention in one kernel, and in three with all scores in memory between
// them: of 16-bit numbers on the tensor cores, and of F32 without them.
void compare_with_unfused(Fixture& fixture, int context) {
  constexpr int kRows = 2048;
  const PrefillCase setting{.heads = 32, .kv_heads = 8, .dim = 128};
  const PrefillData data(fixture, setting, {context}, context - kRows);
  const double fused = fixture.microseconds(
      4, fixture.context(), [&](int, const LaunchContext& launches) { prefill_attention(launches, data.op()); });
  const std::vector<float> results = data.results();
  fixture.report_operations(fmt::format("{} rows of a prompt of {}, fused", kRows, context), fused, data.operations());
  for (const bool halves : {true, false}) {
    const UnfusedAttention unfused(data, setting, halves);
    const auto time = [&](const auto& part) {
      return fixture.microseconds(1, fixture.context_without_overlap(), part);
    };
    const double scores = time([&](int, const LaunchContext& launches) { unfused.scores(launches); });
    const double softmax = time([&](int, const LaunchContext& launches) { unfused.softmax(launches); });
    const double values = time([&](int, const LaunchContext& launches) { unfused.values(launches); });
    const double all = time([&](int, const LaunchContext& launches) { unfused.run(launches); });
    const std::vector<float> others = unfused.results();
    fixture.check(fmt::format("prompt of {}, unfused {}", context, halves ? "F16" : "F32"),
                  difference(results, std::vector<double>(others.begin(), others.end())), kBound);
    fixture.report(
        fmt::format("  unfused, {}: scores {:.0f} us, softmax {:.0f}, values {:.0f}; together {:.0f} us, {:.1f} "
                    "times as long; {:.1f} GB of scores written and read",
                    halves ? "F16 on the tensor cores" : "F32 without them", scores, softmax, values, all, all / fused,
                    unfused.score_bytes() * 1e-9));
  }
}

}  // namespace

void test_prefill(Fixture& fixture) {
  prepare_prefill_attention();
  for (const bool causal : {true, false}) {
    test_prefill(fixture, {.causal = causal});
    test_prefill(fixture, {.heads = 12, .kv_heads = 12, .dim = 32, .causal = causal});
    test_prefill(fixture, {.heads = 4, .kv_heads = 4, .dim = 128, .window = 100, .causal = causal});
    test_prefill(fixture, {.causal = causal, .soft_cap = 2.0f, .sinks = true});
    test_prefill(fixture, {.causal = causal, .extremes = true});
    test_prefill(fixture, {.heads = 4, .kv_heads = 2, .dim = 128, .causal = causal, .sinks = true, .extremes = true});
  }
  test_prefill(fixture, {.heads = 8, .kv_heads = 2, .dim = 64, .window = 128, .sinks = true});
  test_prefill(fixture, {.heads = 4, .kv_heads = 2, .dim = 128}, {4096}, 4096 - 200);
  test_prefill(fixture, {.heads = 4, .kv_heads = 2, .dim = 64, .soft_cap = 30.0f, .sinks = true}, {4096, 4000}, 3950);
  test_prefill(fixture, {.heads = 4, .kv_heads = 1, .dim = 128}, {32768}, 32768 - 80);
  test_prefill(fixture, {.heads = 4, .kv_heads = 2, .dim = 64, .window = 4096, .sinks = true}, {32768}, 32768 - 80);
  if (!fixture.times()) return;
  time_prefill(fixture, {.heads = 32, .kv_heads = 8, .dim = 128}, {2048});
  time_prefill(fixture, {.heads = 12, .kv_heads = 12, .dim = 64, .causal = false}, {512, 512, 512, 512});
  time_prefill(fixture, {.heads = 12, .kv_heads = 12, .dim = 64, .causal = false}, {2048});
  time_prefill(fixture, {.heads = 12, .kv_heads = 12, .dim = 32, .causal = false}, {512, 512, 512, 512});
  for (const int context : {2048, 8192, 32768}) compare_with_unfused(fixture, context);
}

}  // namespace quarrel::cuda
