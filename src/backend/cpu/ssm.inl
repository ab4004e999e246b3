// The pieces of a state-space layer. Convolution and softplus run over channels, the scan over the values of a
// channel's state. Time goes row by row and the state is F32 after each, so where a text was cut changes nothing;
// values beyond the last whole vector go through a padded one, by the same operations.

namespace quarrel::QUARREL_LEVEL {

static inline Floats load_some(const float* from, std::size_t count) {
  if (count >= kLanes) return load(from);
  float lanes[kLanes] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return load(lanes);
}

static inline void store_some(float* to, Floats v, std::size_t count) {
  if (count >= kLanes) return store(to, v);
  float lanes[kLanes];
  store(lanes, v);
  std::memcpy(to, lanes, count * sizeof(float));
}

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
  for (std::size_t i = 0; i < count; i += kLanes) {
    Floats z = load_some(values + i, count - i);
    if (bias != nullptr) z = add(z, load_some(bias + i, count - i));
    store_some(out + i, softplus(z), count - i);
  }
}

static void convolve(const ConvTask& task) {
  const std::size_t history = task.taps - 1;
  for (std::size_t t = 0; t < task.count; ++t) {
    float* out = task.out + static_cast<std::size_t>(task.rows[t]) * task.out_stride;
    for (std::size_t i = 0; i < task.channels; i += kLanes) {
      const std::size_t rest = task.channels - i;
      Floats total = load(task.bias + i);
      for (std::size_t tap = 0; tap < task.taps; ++tap) {
        const std::size_t time = t + tap;
        const Floats x =
            time < history
                ? load(task.history + time * kSsmBlock + i)
                : load_some(task.in + static_cast<std::size_t>(task.rows[time - history]) * task.in_stride + i, rest);
        total = fma(x, load(task.weights + tap * kSsmBlock + i), total);
      }
      store_some(out + i, silu_full(total), rest);
    }
  }
}

// out *= silu(z)
static inline void gate_row(float* out, const float* z, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t rest = count - i;
    store_some(out + i, mul(load_some(out + i, rest), silu_full(load_some(z + i, rest))), rest);
  }
}

// One row in time for kRows channels of a head: they share B and C.
template <std::size_t kRows>
static inline void scan_tile(float* values, std::size_t state, Floats decay, float dt, const float* x, const float* b,
                             const float* c, float skip, float* out) {
  Floats total[kRows];
  Floats input[kRows];
  for (std::size_t k = 0; k < kRows; ++k) {
    total[k] = set(0.0f);
    input[k] = set(dt * x[k]);
  }
  std::size_t s = 0;
  for (; s + kLanes <= state; s += kLanes) {
    const Floats b_part = load(b + s);
    const Floats c_part = load(c + s);
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kRows; ++k) {
      const Floats value = fma(load(values + k * state + s), decay, mul(input[k], b_part));
      store(values + k * state + s, value);
      total[k] = fma(value, c_part, total[k]);
    }
  }
  if (s < state) {
    const std::size_t rest = state - s;
    const Floats b_part = load_some(b + s, rest);
    const Floats c_part = load_some(c + s, rest);
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kRows; ++k) {
      const Floats value = fma(load_some(values + k * state + s, rest), decay, mul(input[k], b_part));
      store_some(values + k * state + s, value, rest);
      total[k] = fma(value, c_part, total[k]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t k = 0; k < kRows; ++k) out[k] = sum(total[k]) + skip * x[k];
}

static void scan_head(const ScanTask& task) {
  constexpr std::size_t kTile = 4;
  const float skip = task.d == nullptr ? 0.0f : *task.d;
  for (std::size_t t = 0; t < task.count; ++t) {
    const auto row = static_cast<std::size_t>(task.rows[t]);
    const float* x = task.x + row * task.x_stride;
    const float* b = task.b + row * task.shared_stride;
    const float* c = task.c + row * task.shared_stride;
    float* out = task.out + row * task.out_stride;
    const float dt = task.dt[row * task.dt_stride];
    const Floats decay = exponential_full(set(dt * *task.a));
    std::size_t i = 0;
    for (; i + kTile <= task.dim; i += kTile) {
      scan_tile<kTile>(task.values + i * task.state, task.state, decay, dt, x + i, b, c, skip, out + i);
    }
    for (; i < task.dim; ++i) {
      scan_tile<1>(task.values + i * task.state, task.state, decay, dt, x + i, b, c, skip, out + i);
    }
    gate_row(out, task.z + row * task.z_stride, task.dim);
  }
}

static void scan_channels(const ScanTask& task) {
  for (std::size_t t = 0; t < task.count; ++t) {
    const auto row = static_cast<std::size_t>(task.rows[t]);
    const float* x = task.x + row * task.x_stride;
    const float* b = task.b + row * task.shared_stride;
    const float* c = task.c + row * task.shared_stride;
    float* out = task.out + row * task.out_stride;
    float dt[kSsmBlock];
    softplus_row(task.dt + row * task.dt_stride, task.dt_bias, dt, task.dim);
    for (std::size_t i = 0; i < task.dim; ++i) {
      const Floats step = set(dt[i]);
      const Floats input = set(dt[i] * x[i]);
      Floats total = set(0.0f);
      for (std::size_t s = 0; s < task.state; s += kLanes) {
        const std::size_t rest = task.state - s;
        float* values = task.values + i * task.state + s;
        const Floats decay = exponential_full(mul(step, load_some(task.a + i * task.state + s, rest)));
        const Floats value = fma(load_some(values, rest), decay, mul(input, load_some(b + s, rest)));
        store_some(values, value, rest);
        total = fma(value, load_some(c + s, rest), total);
      }
      out[i] = sum(total) + (task.d == nullptr ? 0.0f : task.d[i] * x[i]);
    }
    gate_row(out, task.z + row * task.z_stride, task.dim);
  }
}

}  // namespace quarrel::QUARREL_LEVEL
