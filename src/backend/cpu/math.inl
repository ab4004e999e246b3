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

// e^x to the last bits of a double, for x in [-700, 700].
static inline Doubles exponential_wide(Doubles x) {
  const Doubles n = round(mul(x, set_wide(1.44269504088896341)));
  Doubles r = fma(n, set_wide(-6.93147180369123816490e-01), x);  // ln 2 in two parts, the first with zeros at its end
  r = fma(n, set_wide(-1.90821492927058770002e-10), r);
  Doubles p = set_wide(1.0 / 479001600.0);
  p = fma(p, r, set_wide(1.0 / 39916800.0));
  p = fma(p, r, set_wide(1.0 / 3628800.0));
  p = fma(p, r, set_wide(1.0 / 362880.0));
  p = fma(p, r, set_wide(1.0 / 40320.0));
  p = fma(p, r, set_wide(1.0 / 5040.0));
  p = fma(p, r, set_wide(1.0 / 720.0));
  p = fma(p, r, set_wide(1.0 / 120.0));
  p = fma(p, r, set_wide(1.0 / 24.0));
  p = fma(p, r, set_wide(1.0 / 6.0));
  p = fma(p, r, set_wide(0.5));
  p = fma(p, r, set_wide(1.0));
  return mul(fma(p, r, set_wide(1.0)), power_of_two(n));
}

static inline Floats sigmoid(Floats x) { return div(set(1.0f), add(set(1.0f), exponential(sub(set(0.0f), x)))); }

static inline Floats hyperbolic_tangent(Floats x) {
  return sub(set(1.0f), div(set(2.0f), add(exponential(add(x, x)), set(1.0f))));
}

// What of a row a kernel's body is at: a whole vector, or the last values, which have zeros beside them and go through
// the same operations. So each value's result is the same wherever it stands.
struct AllLanes {};
struct SomeLanes {
  std::size_t count;  // fewer than a vector has
};
static inline Floats load(const float* from, AllLanes /*lanes*/) { return load(from); }
static inline Floats load(const float* from, SomeLanes lanes) { return load_some(from, lanes.count); }
static inline void store(float* to, Floats v, AllLanes /*lanes*/) { store(to, v); }
static inline void store(float* to, Floats v, SomeLanes lanes) { store_some(to, v, lanes.count); }
static inline Floats load_half(const std::uint16_t* from, AllLanes /*lanes*/) { return load_half(from); }
static inline Floats load_half(const std::uint16_t* from, SomeLanes lanes) { return load_half_some(from, lanes.count); }
static inline void store_half(std::uint16_t* to, Floats v, AllLanes /*lanes*/) { store_half(to, v); }
static inline void store_half(std::uint16_t* to, Floats v, SomeLanes lanes) { store_half_some(to, v, lanes.count); }

// Calls body(place, lanes) for a row's vectors in ascending order.
template <typename Body>
static inline void for_vectors(std::size_t count, Body body) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, AllLanes{});
  if (i < count) body(i, SomeLanes{count - i});
}

// Applies `function` to every value.
template <typename Function>
static inline void transform(float* values, std::size_t count, Function function) {
  for_vectors(count, [&](std::size_t i, auto lanes) { store(values + i, function(load(values + i, lanes)), lanes); });
}

// The sum of a row: total = accumulate(total, place, lanes) for each vector, in four running sums that do not wait for
// each other. Which one a vector joins and the order in which they meet depend on the row's length alone.
template <typename Accumulate>
static inline float sum_over(std::size_t count, Accumulate accumulate) {
  Floats total[4] = {set(0.0f), set(0.0f), set(0.0f), set(0.0f)};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) total[k] = accumulate(total[k], i + k * kLanes, AllLanes{});
  }
  for (; i + kLanes <= count; i += kLanes) total[0] = accumulate(total[0], i, AllLanes{});
  if (i < count) total[1] = accumulate(total[1], i, SomeLanes{count - i});
  return sum(add(add(total[0], total[1]), add(total[2], total[3])));
}

static inline float sum_of_squares(const float* values, std::size_t count) {
  return sum_over(count, [values](Floats total, std::size_t i, auto lanes) {
    const Floats v = load(values + i, lanes);
    return fma(v, v, total);
  });
}

// The largest of a row of at least one value. What is not a number may be passed over.
static inline float largest_of(const float* values, std::size_t count) {
  if (count < kLanes) {
    float best = values[0];
    for (std::size_t i = 1; i < count; ++i) best = values[i] > best ? values[i] : best;
    return best;
  }
  // The last vector may take values that others have seen: the largest stays what it is.
  const Floats last = load(values + count - kLanes);
  Floats best[4] = {last, last, last, last};
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) best[k] = max(best[k], load(values + i + k * kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) best[0] = max(best[0], load(values + i));
  return largest(max(max(best[0], best[1]), max(best[2], best[3])));
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
