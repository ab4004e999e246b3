// The pieces of a state-space layer. Convolution and softplus run over channels, the scan over the values of a
// channel's state. Time goes row by row and the state is F32 after each, so where a text was cut changes nothing; a few
// rows may share one walk over the state, each by the operations it would have alone.

namespace quarrel::QUARREL_LEVEL {

static inline Floats negative_size(Floats v) { return min(v, sub(set(0.0f), v)); }

// v / (1 + e^-v) through e^-|v|, which never overflows: what is far below zero goes to zero as it should.
static inline Floats silu_full(Floats v) {
  const Floats t = exponential_full(negative_size(v));
  return div(fma(min(set(0.0f), v), t, max(set(0.0f), v)), add(set(1.0f), t));
}

// log(1 + e^z) = max(z, 0) + log(1 + t) with t = e^-|z|, and log(1 + t) = 2 artanh(t / (2 + t)): exact to the last bits
// also where the result is tiny.
static inline Floats softplus(Floats z) {
  const Floats t = exponential_full(negative_size(z));
  const Floats s = div(t, add(set(2.0f), t));
  const Floats square = mul(s, s);
  Floats p = set(1.0f / 17.0f);
  p = fma(p, square, set(1.0f / 15.0f));
  p = fma(p, square, set(1.0f / 13.0f));
  p = fma(p, square, set(1.0f / 11.0f));
  p = fma(p, square, set(1.0f / 9.0f));
  p = fma(p, square, set(1.0f / 7.0f));
  p = fma(p, square, set(1.0f / 5.0f));
  p = fma(p, square, set(1.0f / 3.0f));
  p = fma(p, square, set(1.0f));
  return add(max(set(0.0f), z), mul(add(s, s), p));
}

static void softplus_row(const float* values, const float* bias, float* out, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    Floats z = load(values + i, lanes);
    if (bias != nullptr) z = add(z, load(bias + i, lanes));
    store(out + i, softplus(z), lanes);
  });
}

// What a convolution reads at a time, which begins with the history.
template <typename Lanes>
static inline Floats conv_input(const ConvTask& task, std::size_t time, std::size_t i, Lanes lanes) {
  const std::size_t history = task.taps - 1;
  if (time < history) return load(task.history + time * kSsmStrip + i);
  return load(task.in + static_cast<std::size_t>(task.rows[time - history]) * task.in_stride + i, lanes);
}

// Rows [begin, end) of a vector of channels, with its weights and the last inputs in registers.
template <std::size_t kTaps, typename Lanes>
static inline void convolve_taps(const ConvTask& task, std::size_t begin, std::size_t end, std::size_t i, Lanes lanes) {
  Floats weights[kTaps];
  Floats inputs[kTaps];
  for (std::size_t tap = 0; tap < kTaps; ++tap) weights[tap] = load(task.weights + tap * kSsmStrip + i);
  for (std::size_t tap = 0; tap + 1 < kTaps; ++tap) inputs[tap + 1] = conv_input(task, begin + tap, i, lanes);
  const Floats bias = load(task.bias + i);
  for (std::size_t t = begin; t < end; ++t) {
    const auto row = static_cast<std::size_t>(task.rows[t]);
#pragma GCC unroll 8
    for (std::size_t tap = 0; tap + 1 < kTaps; ++tap) inputs[tap] = inputs[tap + 1];
    inputs[kTaps - 1] = load(task.in + row * task.in_stride + i, lanes);
    Floats total = bias;
#pragma GCC unroll 8
    for (std::size_t tap = 0; tap < kTaps; ++tap) total = fma(inputs[tap], weights[tap], total);
    store(task.out + row * task.out_stride + i, silu_full(total), lanes);
  }
}

// The same for any number of taps.
template <typename Lanes>
static inline void convolve_any(const ConvTask& task, std::size_t begin, std::size_t end, std::size_t i, Lanes lanes) {
  for (std::size_t t = begin; t < end; ++t) {
    Floats total = load(task.bias + i);
    for (std::size_t tap = 0; tap < task.taps; ++tap) {
      total = fma(conv_input(task, t + tap, i, lanes), load(task.weights + tap * kSsmStrip + i), total);
    }
    store(task.out + static_cast<std::size_t>(task.rows[t]) * task.out_stride + i, silu_full(total), lanes);
  }
}

static void convolve(const ConvTask& task) {
  constexpr std::size_t kTimes = 32;  // rows whose inputs stay near while the strip's vectors go over them
  for (std::size_t begin = 0; begin < task.count; begin += kTimes) {
    const std::size_t end = task.count - begin < kTimes ? task.count : begin + kTimes;
    for_vectors(task.channels, [&](std::size_t i, auto lanes) {
      if (task.taps == 4) {
        convolve_taps<4>(task, begin, end, i, lanes);
      } else {
        convolve_any(task, begin, end, i, lanes);
      }
    });
  }
}

// out *= silu(z)
static inline void gate_row(float* out, const float* z, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    store(out + i, mul(load(out + i, lanes), silu_full(load(z + i, lanes))), lanes);
  });
}

// One row in time, as a head sees it.
struct ScanRow {
  const float* x;
  const float* b;
  const float* c;
  float* out;
  float dt;
  float decay;
};

// kTimes rows for kChannels channels of a head from `first` on: they share B and C, and each value of the state is read
// and written once.
template <std::size_t kChannels, std::size_t kTimes>
static inline void scan_some_channels(const ScanTask& task, const ScanRow* rows, std::size_t first, float skip) {
  float* values = task.values + first * task.state;
  float input[kTimes][kChannels];
  Floats total[kTimes][kChannels];
  for (std::size_t t = 0; t < kTimes; ++t) {
    for (std::size_t k = 0; k < kChannels; ++k) {
      input[t][k] = rows[t].dt * rows[t].x[first + k];
      total[t][k] = set(0.0f);
    }
  }
  const auto advance = [&](std::size_t s, auto lanes) {
    Floats value[kChannels];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kChannels; ++k) value[k] = load(values + k * task.state + s, lanes);
#pragma GCC unroll 4
    for (std::size_t t = 0; t < kTimes; ++t) {
      const Floats b = load(rows[t].b + s, lanes);
      const Floats c = load(rows[t].c + s, lanes);
      const Floats decay = set(rows[t].decay);
#pragma GCC unroll 4
      for (std::size_t k = 0; k < kChannels; ++k) {
        value[k] = fma(value[k], decay, mul(set(input[t][k]), b));
        total[t][k] = fma(value[k], c, total[t][k]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kChannels; ++k) store(values + k * task.state + s, value[k], lanes);
  };
  std::size_t s = 0;
  for (; s + kLanes <= task.state; s += kLanes) advance(s, AllLanes{});
  if (s < task.state) advance(s, SomeLanes{task.state - s});
#pragma GCC unroll 4
  for (std::size_t t = 0; t < kTimes; ++t) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kChannels; ++k) rows[t].out[first + k] = sum(total[t][k]) + skip * rows[t].x[first + k];
  }
}

template <std::size_t kTimes>
static inline void scan_rows(const ScanTask& task, std::size_t first_time) {
  constexpr std::size_t kChannels = 4;
  const float skip = task.d == nullptr ? 0.0f : *task.d;
  ScanRow rows[kTimes];
  for (std::size_t t = 0; t < kTimes; ++t) {
    const auto row = static_cast<std::size_t>(task.rows[first_time + t]);
    const float dt = task.dt[row * task.dt_stride];
    float decay[kLanes];
    store(decay, exponential_full(set(dt * *task.a)));
    rows[t] = {.x = task.x + row * task.x_stride,
               .b = task.b + row * task.shared_stride,
               .c = task.c + row * task.shared_stride,
               .out = task.out + row * task.out_stride,
               .dt = dt,
               .decay = decay[0]};
  }
  std::size_t i = 0;
  for (; i + kChannels <= task.dim; i += kChannels) scan_some_channels<kChannels, kTimes>(task, rows, i, skip);
  for (; i < task.dim; ++i) scan_some_channels<1, kTimes>(task, rows, i, skip);
  for (std::size_t t = 0; t < kTimes; ++t) {
    gate_row(rows[t].out, task.z + static_cast<std::size_t>(task.rows[first_time + t]) * task.z_stride, task.dim);
  }
}

static void scan_head(const ScanTask& task) {
  constexpr std::size_t kTimes = 4;
  std::size_t t = 0;
  for (; t + kTimes <= task.count; t += kTimes) scan_rows<kTimes>(task, t);
  for (; t < task.count; ++t) scan_rows<1>(task, t);
}

static void scan_channels(const ScanTask& task) {
  for (std::size_t t = 0; t < task.count; ++t) {
    const auto row = static_cast<std::size_t>(task.rows[t]);
    const float* x = task.x + row * task.x_stride;
    const float* b = task.b + row * task.shared_stride;
    const float* c = task.c + row * task.shared_stride;
    float* out = task.out + row * task.out_stride;
    float dt[kSsmStrip];
    softplus_row(task.dt + row * task.dt_stride, task.dt_bias, dt, task.dim);
    for (std::size_t i = 0; i < task.dim; ++i) {
      const Floats step = set(dt[i]);
      const Floats input = set(dt[i] * x[i]);
      Floats total = set(0.0f);
      for_vectors(task.state, [&](std::size_t s, auto lanes) {
        float* values = task.values + i * task.state + s;
        const Floats decay = exponential_full(mul(step, load(task.a + i * task.state + s, lanes)));
        const Floats value = fma(load(values, lanes), decay, mul(input, load(b + s, lanes)));
        store(values, value, lanes);
        total = fma(value, load(c + s, lanes), total);
      });
      out[i] = sum(total) + (task.d == nullptr ? 0.0f : task.d[i] * x[i]);
    }
    gate_row(out, task.z + row * task.z_stride, task.dim);
  }
}

}  // namespace quarrel::QUARREL_LEVEL
