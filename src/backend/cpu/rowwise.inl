// What is done to one row at a time: digits, norms, activations, rotation, the way into the cache.

namespace quarrel::QUARREL_LEVEL {

// The nearest int8 digit of each of 32 values, and the sum of them.
static inline std::int32_t round_digits(const float* values, float inverse, std::int8_t* digits, float* remainders) {
  float rounded[32];
  for (int i = 0; i < 32; i += kLanes) {
    const Floats scaled = mul(load(values + i), set(inverse));
    // In this order what is not a number becomes one, so that it has a digit; the scale keeps the poison.
    const Floats whole = min(max(round(scaled), set(-127.0f)), set(127.0f));
    store(rounded + i, whole);
    store(remainders + i, sub(scaled, whole));
  }
  std::int32_t total = 0;
  for (int i = 0; i < 32; ++i) {
    digits[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded[i]));
    total += digits[i];
  }
  return total;
}

static inline std::int32_t sum_of(const std::int8_t* digits, int first, int count) {
  std::int32_t total = 0;
  for (int i = first; i < first + count; ++i) total += digits[i];
  return total;
}

static void quantize_row(const float* values, std::size_t count, const QuantizedRows& to, std::size_t row, bool two) {
  std::int8_t* high = to.high + row * to.stride;
  std::int8_t* low = two ? to.low + row * to.stride : nullptr;
  float* scales32 = to.scales32 + row * to.groups32;
  float* sums32 = to.sums32 + row * to.groups32;
  float* scales16 = to.scales16 + row * to.groups16;
  float* sums16 = to.sums16 + row * to.groups16;
  for (std::size_t g = 0; g < to.groups32; ++g) scales32[g] = sums32[g] = 0.0f;
  for (std::size_t g = 0; g < to.groups16; ++g) scales16[g] = sums16[g] = 0.0f;
  for (std::size_t group = 0; group * 32 < to.stride; ++group) {
    const std::size_t begin = group * 32;
    std::int8_t* digits = high + begin;
    if (begin >= count) {
      std::memset(digits, 0, 32);
      if (two) std::memset(low + begin, 0, 32);
      continue;
    }
    float padded_values[32] = {};
    const float* from = values + begin;
    if (count - begin < 32) {
      std::memcpy(padded_values, from, (count - begin) * sizeof(float));
      from = padded_values;
    }
    Floats greatest = set(0.0f);
    Floats total = set(0.0f);
    for (int i = 0; i < 32; i += kLanes) {
      const Floats v = load(from + i);
      const Floats size = max(v, sub(set(0.0f), v));
      greatest = max(greatest, size);
      total = add(total, mul(v, set(0.0f)));  // zero, unless a value is not finite
    }
    const float peak = largest(greatest);
    const float poison = sum(total);
    float remainders[32];
    float unit = peak / 127.0f + poison;
    const float inverse = poison == 0.0f && peak > 1e-30f ? 127.0f / peak : 0.0f;
    round_digits(from, inverse, digits, remainders);
    std::int32_t first = sum_of(digits, 0, 16);
    std::int32_t second = sum_of(digits, 16, 16);
    if (two) {
      std::int8_t* low_digits = low + begin;
      float unused[32];
      round_digits(remainders, 256.0f, low_digits, unused);
      first = first * 256 + sum_of(low_digits, 0, 16);
      second = second * 256 + sum_of(low_digits, 16, 16);
      unit *= 1.0f / 256.0f;
    }
    scales32[group] = unit;
    sums32[group] = unit * static_cast<float>(first + second);
    scales16[2 * group] = scales16[2 * group + 1] = unit;
    sums16[2 * group] = unit * static_cast<float>(first);
    sums16[2 * group + 1] = unit * static_cast<float>(second);
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
