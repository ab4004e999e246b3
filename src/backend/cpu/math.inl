// Elementary functions on the vector type of the level that includes this.

namespace quarrel::QUARREL_LEVEL {

// e^(x - n ln 2), for n nearest to x / ln 2.
static inline Floats exponential_rest(Floats x, Floats n) {
  // ln 2 in two parts, so that the remainder is exact to the last bit.
  Floats r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  // 1 + r + r² q(r), where q meets the exact one at the Chebyshev points of [-ln 2 / 2, ln 2 / 2]: 1e-8 at most.
  Floats p = set(0.00139263261f);
  p = fma(p, r, set(0.00836329255f));
  p = fma(p, r, set(0.0416665524f));
  p = fma(p, r, set(0.166665763f));
  p = fma(p, r, set(0.5f));
  p = fma(p, r, set(1.0f));
  return fma(p, r, set(1.0f));
}

// e^x within 2 units in the last place for x in [-87, 88]; beyond, as at the border. A NaN stays one: min and max give
// their second operand when either is not a number.
static inline Floats exponential(Floats x) {
  x = min(set(88.0f), max(set(-87.0f), x));
  const Floats n = round(mul(x, set(1.44269504088896341f)));
  return times_power_of_two(exponential_rest(x, n), n);
}

// The same for x that is at most 0, as in a softmax.
static inline Floats exponential_below(Floats x) {
  x = max(set(-87.0f), x);
  const Floats n = round(mul(x, set(1.44269504088896341f)));
  return times_power_of_two(exponential_rest(x, n), n);
}

// The same wherever the result is a float: down to the denormals, then zero, and up to infinity. 2^n is no float for
// every such n, so it is multiplied in two halves, of which only the last rounds.
static inline Floats exponential_full(Floats x) {
  x = min(set(89.0f), max(set(-105.0f), x));
  const Floats n = round(mul(x, set(1.44269504088896341f)));
  const Floats half = round(mul(n, set(0.5f)));
  return mul(mul(exponential_rest(x, n), power_of_two(half)), power_of_two(sub(n, half)));
}

static inline Floats sigmoid(Floats x) { return div(set(1.0f), add(set(1.0f), exponential(sub(set(0.0f), x)))); }

static inline Floats hyperbolic_tangent(Floats x) {
  return sub(set(1.0f), div(set(2.0f), add(exponential(add(x, x)), set(1.0f))));
}

// Applies `function` to every value; the last ones go through a padded vector, so each value's result is the same
// wherever it stands.
template <typename Function>
static inline void transform(float* values, std::size_t count, Function function) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(values + i, function(load(values + i)));
  if (i < count) {
    float rest[kLanes] = {};
    std::memcpy(rest, values + i, (count - i) * sizeof(float));
    store(rest, function(load(rest)));
    std::memcpy(values + i, rest, (count - i) * sizeof(float));
  }
}

static inline float dot_floats(const float* a, const float* b, std::size_t count) {
  Floats total = set(0.0f);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) total = fma(load(a + i), load(b + i), total);
  float result = sum(total);
  for (; i < count; ++i) result += a[i] * b[i];
  return result;
}

}  // namespace quarrel::QUARREL_LEVEL
