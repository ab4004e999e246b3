// Activations, alone and as the gate of a feed-forward: gate = activation(gate) * up in one pass.

namespace quarrel::QUARREL_LEVEL {

static inline Floats silu_of(Floats v) { return div(v, add(set(1.0f), exponential(sub(set(0.0f), v)))); }

// (1 + tanh(u)) / 2 is the sigmoid of 2u: nothing cancels where the result is small.
static inline Floats gelu_tanh_of(Floats v) {
  constexpr float kTwice = 1.5957691216057308f;  // 2 * sqrt(2 / pi)
  const Floats negative_twice = mul(v, fma(set(-kTwice * 0.044715f), mul(v, v), set(-kTwice)));
  return div(v, add(set(1.0f), exponential(negative_twice)));
}

// v * P(v), P the normal distribution, as max(v, 0) - |v| * P(-|v|). P(-a) is e^(-a²/2) times a function that falls
// slowly: a polynomial in 1 / (1 + 0.35 a) with relative errors below 4e-8, for a up to 14.5, where P is zero in F32.
static inline Floats gelu_erf_of(Floats v) {
  const Floats size = max(v, sub(set(0.0f), v));
  const Floats a = min(set(14.5f), size);
  const Floats t = div(set(1.0f), fma(set(0.35f), a, set(1.0f)));
  Floats p = set(-0.0291578608f);
  p = fma(p, t, set(0.1440308f));
  p = fma(p, t, set(-0.255838762f));
  p = fma(p, t, set(0.159319425f));
  p = fma(p, t, set(-0.0232121725f));
  p = fma(p, t, set(0.105552428f));
  p = fma(p, t, set(0.119821306f));
  p = fma(p, t, set(0.139863513f));
  p = fma(p, t, set(0.139621307f));
  const Floats tail = mul(mul(p, t), exponential_full(mul(mul(a, a), set(-0.5f))));
  return sub(max(set(0.0f), v), mul(size, tail));
}

static inline Floats relu_squared_of(Floats v) {
  const Floats positive = max(set(0.0f), v);
  return mul(positive, positive);
}

static void silu(float* values, std::size_t count) {
  transform(values, count, [](Floats v) { return silu_of(v); });
}
static void gelu_tanh(float* values, std::size_t count) {
  transform(values, count, [](Floats v) { return gelu_tanh_of(v); });
}
static void gelu_erf(float* values, std::size_t count) {
  transform(values, count, [](Floats v) { return gelu_erf_of(v); });
}
static void relu_squared(float* values, std::size_t count) {
  transform(values, count, [](Floats v) { return relu_squared_of(v); });
}

// gate = product(gate, up)
template <typename Product>
static inline void combine(float* gate, const float* up, std::size_t count, Product product) {
  for_vectors(count, [=](std::size_t i, auto lanes) {
    store(gate + i, product(load(gate + i, lanes), load(up + i, lanes)), lanes);
  });
}

static void swiglu(float* gate, const float* up, std::size_t count) {
  combine(gate, up, count, [](Floats g, Floats u) { return mul(silu_of(g), u); });
}
static void geglu_tanh(float* gate, const float* up, std::size_t count) {
  combine(gate, up, count, [](Floats g, Floats u) { return mul(gelu_tanh_of(g), u); });
}
static void geglu_erf(float* gate, const float* up, std::size_t count) {
  combine(gate, up, count, [](Floats g, Floats u) { return mul(gelu_erf_of(g), u); });
}
static void reglu_squared(float* gate, const float* up, std::size_t count) {
  combine(gate, up, count, [](Floats g, Floats u) { return mul(relu_squared_of(g), u); });
}

// The limits come first in min and max: a NaN stays one.
static void swiglu_clamped(float* gate, const float* up, float clamp, float alpha, std::size_t count) {
  combine(gate, up, count, [clamp, alpha](Floats g, Floats u) {
    g = min(set(clamp), g);
    u = max(set(-clamp), min(set(clamp), u));
    return mul(mul(g, sigmoid(mul(set(alpha), g))), add(u, set(1.0f)));
  });
}

}  // namespace quarrel::QUARREL_LEVEL
