// Attention of one row over the paged cache: an online softmax, one cache block of absolute positions at a time. Where
// a prompt was cut into chunks therefore changes nothing. Query heads that share a key-value head share its decoding.

namespace quarrel::QUARREL_LEVEL {

static inline void load_rows(const std::byte* from, bool half, std::size_t count, float* to) {
  if (!half) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load_half(halves + i));
  for (; i < count; ++i) to[i] = half_to_float(halves[i]);
}

static inline float exponential_of(float x) {
  float lanes[kLanes];
  store(lanes, exponential(set(x)));
  return lanes[0];
}

struct SoftmaxState {
  float largest;
  float total;
};

// One block of scores joins a head's running softmax.
static inline void accumulate(SoftmaxState& state, float* scores, std::int32_t first, std::int32_t last,
                              const float* values, std::size_t value_dim, float* out) {
  float block_largest = scores[first];
  for (std::int32_t s = first + 1; s < last; ++s) block_largest = scores[s] > block_largest ? scores[s] : block_largest;
  const float largest = block_largest > state.largest ? block_largest : state.largest;
  const float shrink = exponential_of(state.largest - largest);
  for (std::int32_t s = 0; s < kAttendBlock; s += kLanes) {
    store(scores + s, exponential(sub(load(scores + s), set(largest))));
  }
  float block_total = 0.0f;
  for (std::int32_t s = first; s < last; ++s) block_total += scores[s];
  state.total = state.total * shrink + block_total;
  state.largest = largest;
  std::size_t i = 0;
  for (; i + kLanes <= value_dim; i += kLanes) {
    Floats cell = mul(load(out + i), set(shrink));
    for (std::int32_t s = first; s < last; ++s) {
      cell = fma(set(scores[s]), load(values + static_cast<std::size_t>(s) * value_dim + i), cell);
    }
    store(out + i, cell);
  }
  for (; i < value_dim; ++i) {
    float cell = out[i] * shrink;
    for (std::int32_t s = first; s < last; ++s) cell += scores[s] * values[static_cast<std::size_t>(s) * value_dim + i];
    out[i] = cell;
  }
}

static void attend(const AttendTask& task) {
  const auto group = static_cast<std::size_t>(task.group);
  const auto key_dim = static_cast<std::size_t>(task.key_dim);
  const auto value_dim = static_cast<std::size_t>(task.value_dim);
  const std::size_t element = task.half ? sizeof(std::uint16_t) : sizeof(float);
  constexpr float kLowest = -1e30f;  // below every score, and its distance to any of them is finite
  float* keys = task.scratch;
  float* values = keys + kAttendBlock * key_dim;
  auto* states = reinterpret_cast<SoftmaxState*>(values + kAttendBlock * value_dim);
  for (std::size_t g = 0; g < group; ++g) states[g] = {kLowest, 0.0f};
  for (std::size_t i = 0; i < group * value_dim; ++i) task.out[i] = 0.0f;

  for (std::int32_t block = task.begin / kAttendBlock; block * kAttendBlock < task.end; ++block) {
    const std::byte* base = task.base + task.block_bytes * static_cast<std::size_t>(task.blocks[block]);
    const std::int32_t start = block * kAttendBlock;
    const std::int32_t first = task.begin > start ? task.begin - start : 0;
    const std::int32_t last = task.end - start < kAttendBlock ? task.end - start : kAttendBlock;
    load_rows(base, task.half, static_cast<std::size_t>(last) * key_dim, keys);
    load_rows(base + kAttendBlock * key_dim * element, task.half, static_cast<std::size_t>(last) * value_dim, values);
    for (std::size_t g = 0; g < group; ++g) {
      float scores[kAttendBlock];
      for (float& score : scores) score = kLowest;
      for (std::int32_t s = first; s < last; ++s) {
        float score =
            dot_floats(task.q + g * key_dim, keys + static_cast<std::size_t>(s) * key_dim, key_dim) * task.scale;
        if (task.soft_cap > 0.0f) {
          float lanes[kLanes];
          store(lanes, hyperbolic_tangent(set(score / task.soft_cap)));
          score = task.soft_cap * lanes[0];
        }
        scores[s] = score;
      }
      accumulate(states[g], scores, first, last, values, value_dim, task.out + g * value_dim);
    }
  }
  for (std::size_t g = 0; g < group; ++g) {
    float* out = task.out + g * value_dim;
    float total = states[g].total;
    float factor = 1.0f;
    if (task.sinks != nullptr) {
      const float largest = task.sinks[g] > states[g].largest ? task.sinks[g] : states[g].largest;
      factor = exponential_of(states[g].largest - largest);
      total = total * factor + exponential_of(task.sinks[g] - largest);
    }
    const float share = factor / total;
    transform(out, value_dim, [share](Floats v) { return mul(v, set(share)); });
  }
}

}  // namespace quarrel::QUARREL_LEVEL
