// What is done to one row at a time: int8 activations, norms, sums, rotation, the way into the cache and back.

namespace quarrel::QUARREL_LEVEL {

// The nearest int8 numbers to 32 scaled values, and what is left of the values.
static inline void round_to_int8(const float* values, float inverse, std::int8_t* to, float* remainders) {
  float rounded[32];
  for (int i = 0; i < 32; i += kLanes) {
    const Floats scaled = mul(load(values + i), set(inverse));
    // In this order what is not a number becomes one, so that it fits a byte; the scale keeps the poison.
    const Floats whole = min(max(round(scaled), set(-127.0f)), set(127.0f));
    store(rounded + i, whole);
    store(remainders + i, sub(scaled, whole));
  }
  std::int8_t bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded[i]));
  std::memcpy(to, bytes, sizeof bytes);
}

static inline std::int32_t sum_of16(const std::int8_t* values) {
  std::int8_t bytes[16];
  std::memcpy(bytes, values, sizeof bytes);
  std::int32_t total = 0;
  for (const std::int8_t byte : bytes) total += byte;
  return total;
}

// One row's 32 columns, which begin at `values`, to place `at` of its tile. `outlier`: what the largest of them must
// reach to have a low part.
static inline void quantize_group(const float* values, float outlier, Int8Group& to, std::size_t at) {
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
  const bool two = inverse > 0.0f && peak >= outlier;
  float remainders[32];
  round_to_int8(values, inverse, to.high[at], remainders);
  to.has_low[at] = two ? 1 : 0;
  if (two) {
    float unused[32];
    round_to_int8(remainders, 256.0f, to.low[at], unused);
  } else {
    std::memset(to.low[at], 0, 32);
  }
  to.scale[at] = scale;
  std::int32_t both[2];
  for (int half = 0; half < 2; ++half) {
    const std::int32_t high = sum_of16(to.high[at] + 16 * half);
    const std::int32_t low = two ? sum_of16(to.low[at] + 16 * half) : 0;
    to.high_sums[half][at] = high;
    both[half] = high * 256 + low;
    to.both_sums[half][at] = both[half];
    to.value_sums[half][at] = scale * (1.0f / 256.0f) * static_cast<float>(both[half]);
  }
  to.value_sum[at] = scale * (1.0f / 256.0f) * static_cast<float>(both[0] + both[1]);
}

static void quantize_row(const float* values, std::size_t count, const Int8Rows& to, std::size_t row, float threshold) {
  // The threshold of a row that is not finite does not matter: its scales are not either.
  const float outlier = threshold > 0.0f
                            ? threshold * __builtin_sqrtf(dot_floats(values, values, count) / static_cast<float>(count))
                            : 0.0f;
  Int8Group* groups = to.tile(row);
  const std::size_t at = row % kInt8TileRows;
  std::size_t begin = 0;
  for (; begin + 32 <= count; begin += 32, ++groups) quantize_group(values + begin, outlier, *groups, at);
  if (begin < count) {
    float rest[32] = {};
    std::memcpy(rest, values + begin, (count - begin) * sizeof(float));
    quantize_group(rest, outlier, *groups, at);
  }
}

static float rms_norm(const float* in, const float* weight, float* out, std::size_t count, float epsilon) {
  float squares = sum_of_squares(in, count);
  if (squares > 3.4028234e38f) {  // values that are finite may have squares that are not
    for_vectors(count, [in, out](std::size_t i, auto lanes) {
      store(out + i, mul(load(in + i, lanes), set(0x1p-80f)), lanes);
    });
    in = out;
    epsilon = 0.0f;
    squares = sum_of_squares(in, count);
  }
  const Floats factor = set(1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + epsilon));
  if (weight == nullptr) {
    for_vectors(count, [=](std::size_t i, auto lanes) { store(out + i, mul(load(in + i, lanes), factor), lanes); });
  } else {
    for_vectors(count, [=](std::size_t i, auto lanes) {
      store(out + i, mul(mul(load(in + i, lanes), factor), load(weight + i, lanes)), lanes);
    });
  }
  return squares;
}

static float layer_norm(const float* in, const float* weight, const float* bias, float* out, std::size_t count,
                        float epsilon) {
  const float total =
      sum_over(count, [in](Floats sum, std::size_t i, auto lanes) { return add(sum, load(in + i, lanes)); });
  const Floats mean = set(total / static_cast<float>(count));
  const float squares = sum_over(count, [=](Floats sum, std::size_t i, auto lanes) {
    store(out + i, sub(load(in + i, lanes), mean), lanes);
    const Floats difference = load(out + i, lanes);  // zero, not -mean, beyond the last value
    return fma(difference, difference, sum);
  });
  const Floats factor = set(1.0f / __builtin_sqrtf(squares / static_cast<float>(count) + epsilon));
  for_vectors(count, [=](std::size_t i, auto lanes) {
    Floats value = mul(load(out + i, lanes), factor);
    if (weight != nullptr) value = mul(value, load(weight + i, lanes));
    if (bias != nullptr) value = add(value, load(bias + i, lanes));
    store(out + i, value, lanes);
  });
  return squares;
}

static void add_row(float* values, const float* more, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    store(values + i, add(load(values + i, lanes), load(more + i, lanes)), lanes);
  });
}

static void add_scaled(float* values, const float* more, float scale, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    store(values + i, fma(set(scale), load(more + i, lanes), load(values + i, lanes)), lanes);
  });
}

static void multiply(float* values, const float* factors, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    store(values + i, mul(load(values + i, lanes), load(factors + i, lanes)), lanes);
  });
}

static void soft_cap(float* values, float scale, float cap, std::size_t count) {
  if (cap > 0.0f) {
    transform(values, count,
              [scale, cap](Floats v) { return mul(set(cap), hyperbolic_tangent(mul(v, set(scale / cap)))); });
  } else if (scale != 1.0f) {
    transform(values, count, [scale](Floats v) { return mul(v, set(scale)); });
  }
}

// What is further below the largest than e^-87 becomes zero. A NaN or +infinity makes all of them NaN.
static void softmax(float* values, std::size_t count) {
  if (count == 0) return;
  const Floats best = set(largest_of(values, count));
  const float total = sum_over(count, [=](Floats sum, std::size_t i, auto lanes) {
    const Floats below = sub(load(values + i, lanes), best);
    store(values + i, zero_below(exponential(below), below, set(-87.0f)), lanes);
    return add(sum, load(values + i, lanes));  // nothing beyond the last value
  });
  const Floats share = set(1.0f / total);
  transform(values, count, [share](Floats v) { return mul(v, share); });
}

static void rotate_half(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  for_vectors(pairs, [=](std::size_t i, auto lanes) {
    const Floats a = load(head + i, lanes);
    const Floats b = load(head + pairs + i, lanes);
    const Floats cosine = load(cosines + i, lanes);
    const Floats sine = load(sines + i, lanes);
    store(head + i, sub(mul(a, cosine), mul(b, sine)), lanes);
    store(head + pairs + i, add(mul(a, sine), mul(b, cosine)), lanes);
  });
}

static void rotate_interleaved(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  constexpr std::size_t kPairs = kLanes / 2;
  const auto turned = [](Floats v, const float* cosine, const float* sine) {
    return subtract_add(mul(v, twice_each(cosine)), mul(swap_pairs(v), twice_each(sine)));
  };
  std::size_t i = 0;
  for (; i + kPairs <= pairs; i += kPairs) {
    store(head + 2 * i, turned(load(head + 2 * i), cosines + i, sines + i));
  }
  if (i < pairs) {
    const std::size_t rest = pairs - i;
    float cosine[kPairs] = {};
    float sine[kPairs] = {};
    std::memcpy(cosine, cosines + i, rest * sizeof(float));
    std::memcpy(sine, sines + i, rest * sizeof(float));
    store_some(head + 2 * i, turned(load_some(head + 2 * i, 2 * rest), cosine, sine), 2 * rest);
  }
}

static std::uint64_t store_half_row(const float* values, std::uint16_t* out, std::size_t count) {
  const Floats most = set(65504.0f);
  const Floats least = set(-65504.0f);
  std::uint64_t clamped = 0;
  for_vectors(count, [&](std::size_t i, auto lanes) {
    const Floats v = load(values + i, lanes);
    const std::uint32_t beyond = above(max(v, sub(set(0.0f), v)), most);
    if (beyond != 0) clamped += static_cast<std::uint64_t>(__builtin_popcount(beyond));
    store_half(out + i, min(most, max(least, v)), lanes);  // in this order a NaN stays one
  });
  return clamped;
}

static void load_half_row(const std::uint16_t* halves, float* out, std::size_t count) {
  for_vectors(count, [=](std::size_t i, auto lanes) { store(out + i, load_half(halves + i, lanes), lanes); });
}

}  // namespace quarrel::QUARREL_LEVEL
