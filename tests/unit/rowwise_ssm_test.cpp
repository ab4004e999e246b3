// Convolution and scans at every level: against double, and the same bits however the rows of a text are cut.
#include <array>

#include "unit/rowwise_support.h"

namespace quarrel::test {
namespace {

constexpr std::size_t kRows = 41;  // more than a kernel takes at once, and no multiple of it

double silu_of(double z) { return z / (1.0 + std::exp(-z)); }

std::vector<std::int32_t> row_numbers() {
  std::vector<std::int32_t> rows(kRows);
  for (std::size_t t = 0; t < kRows; ++t) rows[t] = static_cast<std::int32_t>(kRows - 1 - t);  // any order is allowed
  return rows;
}

TEST(RowwiseSsm, Convolution) {
  const std::vector<std::int32_t> rows = row_numbers();
  for (const IsaLevel level : available_levels()) {
    for (const std::size_t taps : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{5}}) {
      for (const std::size_t channels : {std::size_t{1}, std::size_t{15}, std::size_t{17}, kSsmStrip}) {
        SCOPED_TRACE(testing::Message() << level_name(level) << ", " << taps << " taps, " << channels << " channels");
        const std::vector<float> in = random_values(kRows * channels, 1);
        const std::vector<float> history = random_values(taps * kSsmStrip, 2);
        const std::vector<float> weights = random_values(taps * kSsmStrip, 3);
        const std::vector<float> bias = random_values(kSsmStrip, 4);
        Row out(kRows * channels);
        const Row unaligned{in};
        ConvTask task{.in = unaligned.values().data(),
                      .in_stride = channels,
                      .out = out.data(),
                      .out_stride = channels,
                      .rows = rows.data(),
                      .count = kRows,
                      .channels = channels,
                      .taps = taps,
                      .history = history.data(),
                      .weights = weights.data(),
                      .bias = bias.data()};
        kernels_of(level).convolve(task);
        const auto input = [&](std::size_t time, std::size_t channel) {
          return time < taps - 1 ? history[time * kSsmStrip + channel]
                                 : in[static_cast<std::size_t>(rows[time - (taps - 1)]) * channels + channel];
        };
        for (std::size_t t = 0; t < kRows; ++t) {
          for (std::size_t channel = 0; channel < channels; ++channel) {
            auto sum = static_cast<double>(bias[channel]);
            for (std::size_t tap = 0; tap < taps; ++tap) {
              sum += static_cast<double>(input(t + tap, channel)) *
                     static_cast<double>(weights[tap * kSsmStrip + channel]);
            }
            const float got = out[static_cast<std::size_t>(rows[t]) * channels + channel];
            ASSERT_NO_FATAL_FAILURE(expect_close(got, silu_of(sum), 2e-6));
          }
        }
        ASSERT_TRUE(out.intact());
        // One row at a time, each with what came before as its history.
        Row single(kRows * channels);
        task.out = single.data();
        task.count = 1;
        for (std::size_t t = 0; t < kRows; ++t) {
          std::vector<float> before(taps * kSsmStrip, 0.0f);
          for (std::size_t tap = 0; tap + 1 < taps; ++tap) {
            for (std::size_t c = 0; c < channels; ++c) before[tap * kSsmStrip + c] = input(t + tap, c);
          }
          task.history = before.data();
          task.rows = &rows[t];
          kernels_of(level).convolve(task);
        }
        ASSERT_TRUE(std::ranges::equal(single.values(), out.values()));
      }
    }
  }
}

struct ScanCase {
  std::size_t dim;
  std::size_t state;
  bool by_channel;
};

void expect_scan(const CpuKernels& kernels, const ScanCase& scan, bool with_d) {
  const auto [dim, state, by_channel] = scan;
  const std::vector<std::int32_t> rows = row_numbers();
  const std::vector<float> x = random_values(kRows * dim, 1);
  const std::vector<float> z = random_values(kRows * dim, 2);
  const std::vector<float> b = random_values(kRows * state, 3);
  const std::vector<float> c = random_values(kRows * state, 4);
  std::vector<float> dt = random_values(kRows * dim, 5);
  if (!by_channel) {
    for (float& value : dt) value = std::abs(value);
  }
  std::vector<float> a = random_values(dim * state, 6);
  for (float& value : a) value = -std::abs(value);
  const std::vector<float> d = random_values(dim, 7);
  const std::vector<float> begin = random_values(dim * state, 8);
  Row out(kRows * dim);
  Row values{begin};
  ScanTask task{.rows = rows.data(),
                .count = kRows,
                .dim = dim,
                .state = state,
                .x = x.data(),
                .x_stride = dim,
                .b = b.data(),
                .c = c.data(),
                .shared_stride = state,
                .dt = dt.data(),
                .dt_stride = dim,
                .z = z.data(),
                .z_stride = dim,
                .out = out.data(),
                .out_stride = dim,
                .a = a.data(),
                .d = with_d ? d.data() : nullptr,
                .values = values.data()};
  const auto run = by_channel ? kernels.scan_channels : kernels.scan_head;
  run(task);
  std::vector<double> exact(begin.begin(), begin.end());
  for (std::size_t t = 0; t < kRows; ++t) {
    const auto row = static_cast<std::size_t>(rows[t]);
    for (std::size_t i = 0; i < dim; ++i) {
      const auto raw = static_cast<double>(dt[row * dim + (by_channel ? i : 0)]);
      const double step = by_channel ? std::log1p(std::exp(raw)) : raw;
      const auto input = static_cast<double>(x[row * dim + i]);
      double sum = with_d ? static_cast<double>(d[by_channel ? i : 0]) * input : 0.0;
      for (std::size_t s = 0; s < state; ++s) {
        double& value = exact[i * state + s];
        const auto decay = static_cast<double>(a[by_channel ? i * state + s : 0]);
        value = value * std::exp(step * decay) + step * input * static_cast<double>(b[row * state + s]);
        sum += value * static_cast<double>(c[row * state + s]);
      }
      ASSERT_NO_FATAL_FAILURE(
          expect_close(out[row * dim + i], sum * silu_of(static_cast<double>(z[row * dim + i])), 1e-5, 3.0));
    }
  }
  ASSERT_TRUE(out.intact() && values.intact());
  // In two parts, the first of every length.
  for (std::size_t cut = 0; cut <= kRows; ++cut) {
    Row again(kRows * dim);
    Row state_again{begin};
    task.out = again.data();
    task.values = state_again.data();
    task.rows = rows.data();
    task.count = cut;
    run(task);
    task.rows = rows.data() + cut;
    task.count = kRows - cut;
    run(task);
    ASSERT_TRUE(std::ranges::equal(again.values(), out.values())) << cut;
    ASSERT_TRUE(std::ranges::equal(state_again.values(), values.values())) << cut;
  }
}

TEST(RowwiseSsm, Scans) {
  for (const IsaLevel level : available_levels()) {
    for (const std::size_t state :
         {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17}, std::size_t{128}}) {
      for (const std::size_t dim : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
        for (const bool by_channel : {false, true}) {
          SCOPED_TRACE(testing::Message() << level_name(level) << ", " << dim << " channels of " << state
                                          << (by_channel ? ", by channel" : ", a head"));
          ASSERT_NO_FATAL_FAILURE(
              expect_scan(kernels_of(level), {.dim = dim, .state = state, .by_channel = by_channel}, state != 16));
        }
      }
    }
  }
}

TEST(RowwiseSsm, Softplus) {
  for_levels_and_lengths([](const CpuKernels& kernels, std::size_t length) {
    const std::vector<float> z = random_values(length, 1, 10.0f);
    const std::vector<float> bias = random_values(length, 2);
    Row plain(length);
    kernels.softplus(z.data(), nullptr, plain.data(), length);
    Row biased(length);
    kernels.softplus(z.data(), bias.data(), biased.data(), length);
    for (std::size_t i = 0; i < length; ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_close(plain[i], std::log1p(std::exp(static_cast<double>(z[i]))), 4e-7, 0.0));
      const float sum = z[i] + bias[i];
      ASSERT_NO_FATAL_FAILURE(expect_close(biased[i], std::log1p(std::exp(static_cast<double>(sum))), 4e-7, 0.0));
    }
    ASSERT_TRUE(plain.intact() && biased.intact());
  });
}

}  // namespace
}  // namespace quarrel::test
