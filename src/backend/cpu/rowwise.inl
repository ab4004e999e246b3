// What is done to one row at a time: digits, norms, activations, rotation, the way into the cache.

namespace quarrel::QUARREL_LEVEL {

// The nearest int8 digits of 32 values, and what is left of the values.
static inline void round_digits(const float* values, float inverse, std::int8_t* digits, float* remainders) {
  float rounded[32];
  for (int i = 0; i < 32; i += kLanes) {
    const Floats scaled = mul(load(values + i), set(inverse));
    // In this order what is not a number becomes one, so that it has a digit; the scale keeps the poison.
    const Floats whole = min(max(round(scaled), set(-127.0f)), set(127.0f));
    store(rounded + i, whole);
    store(remainders + i, sub(scaled, whole));
  }
  std::int8_t bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded[i]));
  std::memcpy(digits, bytes, sizeof bytes);
}

static inline std::int32_t sum_of16(const std::int8_t* digits) {
  std::int8_t bytes[16];
  std::memcpy(bytes, digits, sizeof bytes);
  std::int32_t total = 0;
  for (const std::int8_t byte : bytes) total += byte;
  return total;
}

// One row's 32 columns, which begin at `values`. `loud`: what the largest of them must reach to have a second digit.
static inline void quantize_group(const float* values, float loud, DigitGroup& to, std::size_t slot) {
  Floats greatest = set(0.0f);
  Floats total = set(0.0f);
  for (int i = 0; i < 32; i += kLanes) {
    const Floats v = load(values + i);
    greatest = max(greatest, max(v, sub(set(0.0f), v)));
    total = add(total, mul(v, set(0.0f)));  // zero, unless a value is not finite
  }
  const float peak = largest(greatest);
  const float poison = sum(total);
  const float scale = peak / 127.0f + poison;
  const float inverse = poison == 0.0f && peak > 1e-30f ? 127.0f / peak : 0.0f;
  const bool two = inverse > 0.0f && peak >= loud;
  float remainders[32];
  round_digits(values, inverse, to.high[slot], remainders);
  to.has_low[slot] = two ? 1 : 0;
  if (two) {
    float unused[32];
    round_digits(remainders, 256.0f, to.low[slot], unused);
  } else {
    std::memset(to.low[slot], 0, 32);
  }
  to.scale[slot] = scale;
  std::int32_t both[2];
  for (int half = 0; half < 2; ++half) {
    const std::int32_t high = sum_of16(to.high[slot] + 16 * half);
    const std::int32_t low = two ? sum_of16(to.low[slot] + 16 * half) : 0;
    to.high_sums[half][slot] = high;
    to.low_sums[half][slot] = low;
    both[half] = high * 256 + low;
    to.value_sums[half][slot] = scale * (1.0f / 256.0f) * static_cast<float>(both[half]);
  }
  to.value_sum[slot] = scale * (1.0f / 256.0f) * static_cast<float>(both[0] + both[1]);
}

static void quantize_row(const float* values, std::size_t count, const DigitRows& to, std::size_t row,
                         float threshold) {
  // The threshold of a row that is not finite does not matter: its scales are not either.
  const float loud = threshold > 0.0f
                         ? threshold * __builtin_sqrtf(dot_floats(values, values, count) / static_cast<float>(count))
                         : 0.0f;
  DigitGroup* groups = to.tile(row);
  const std::size_t slot = row % kDigitRows;
  std::size_t begin = 0;
  for (; begin + 32 <= count; begin += 32, ++groups) quantize_group(values + begin, loud, *groups, slot);
  if (begin < count) {
    float rest[32] = {};
    std::memcpy(rest, values + begin, (count - begin) * sizeof(float));
    quantize_group(rest, loud, *groups, slot);
  }
}

static float rms_norm(const float* in, const float* weight, float* out, std::size_t count, float epsilon) {
  float squares = dot_floats(in, in, count);
  if (squares > 3.4028234e38f) {  // values that are finite may have squares that are not
    for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * 0x1p-80f;
    in = out;
    epsilon = 0.0f;
    squares = dot_floats(in, in, count);
  }
  const float factor = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + epsilon);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Floats value = mul(load(in + i), set(factor));
    store(out + i, weight == nullptr ? value : mul(value, load(weight + i)));
  }
  for (; i < count; ++i) out[i] = in[i] * factor * (weight == nullptr ? 1.0f : weight[i]);
  return squares;
}

static float layer_norm(const float* in, const float* weight, const float* bias, float* out, std::size_t count,
                        float epsilon) {
  Floats lanes = set(0.0f);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes = add(lanes, load(in + i));
  float total = sum(lanes);
  for (; i < count; ++i) total += in[i];
  const float mean = total / static_cast<float>(count);
  for (i = 0; i < count; ++i) out[i] = in[i] - mean;
  const float squares = dot_floats(out, out, count);
  const float factor = 1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + epsilon);
  for (i = 0; i < count; ++i) {
    out[i] = out[i] * factor * (weight == nullptr ? 1.0f : weight[i]) + (bias == nullptr ? 0.0f : bias[i]);
  }
  return squares;
}

static void add_row(float* values, const float* more, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] += more[i];
}

static void add_scaled(float* values, const float* more, float scale, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] += scale * more[i];
}

static void silu(float* values, std::size_t count) {
  transform(values, count, [](Floats v) { return mul(v, sigmoid(v)); });
}

static void gelu_tanh(float* values, std::size_t count) {
  transform(values, count, [](Floats v) {
    const Floats cube = mul(mul(v, v), v);
    const Floats inner = mul(set(0.7978845608028654f), fma(set(0.044715f), cube, v));
    return mul(mul(set(0.5f), v), add(set(1.0f), hyperbolic_tangent(inner)));
  });
}

static void relu_squared(float* values, std::size_t count) {
  transform(values, count, [](Floats v) {
    const Floats positive = max(set(0.0f), v);
    return mul(positive, positive);
  });
}

static void multiply(float* values, const float* factors, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] *= factors[i];
}

// As with `transform`, the last values go through padded vectors. The limits come first in min and max: a NaN stays
// one.
static void swiglu_clamped(float* gate, const float* up, float clamp, float alpha, std::size_t count) {
  const auto product = [clamp, alpha](Floats g, Floats u) {
    g = min(set(clamp), g);
    u = max(set(-clamp), min(set(clamp), u));
    return mul(mul(g, sigmoid(mul(set(alpha), g))), add(u, set(1.0f)));
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(gate + i, product(load(gate + i), load(up + i)));
  if (i < count) {
    float rest[kLanes] = {};
    float rest_up[kLanes] = {};
    std::memcpy(rest, gate + i, (count - i) * sizeof(float));
    std::memcpy(rest_up, up + i, (count - i) * sizeof(float));
    store(rest, product(load(rest), load(rest_up)));
    std::memcpy(gate + i, rest, (count - i) * sizeof(float));
  }
}

static void soft_cap(float* values, float scale, float cap, std::size_t count) {
  if (cap > 0.0f) {
    transform(values, count,
              [scale, cap](Floats v) { return mul(set(cap), hyperbolic_tangent(mul(v, set(scale / cap)))); });
  } else if (scale != 1.0f) {
    transform(values, count, [scale](Floats v) { return mul(v, set(scale)); });
  }
}

static void rotate_half(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const float a = head[i];
    const float b = head[i + pairs];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + pairs] = a * sines[i] + b * cosines[i];
  }
}

static void rotate_interleaved(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cosines[i] - b * sines[i];
    head[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

static std::uint64_t store_half_row(const float* values, std::uint16_t* out, std::size_t count) {
  constexpr float kMost = 65504.0f;
  std::uint64_t clamped = 0;
  for (std::size_t i = 0; i < count; ++i) clamped += values[i] > kMost || values[i] < -kMost;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_half(out + i, min(set(kMost), max(set(-kMost), load(values + i))));
  }
  for (; i < count; ++i) {
    const float v = values[i];
    out[i] = float_to_half(v > kMost ? kMost : v < -kMost ? -kMost : v);
  }
  return clamped;
}

}  // namespace quarrel::QUARREL_LEVEL
