// The loops over a whole vocabulary behind the choice of a token, as backend/sampling_kernels.h describes them.

namespace quarrel::QUARREL_LEVEL {

static bool largest_logit(const float* logits, std::size_t count, float* best) {
  const Floats infinity = set(__builtin_inff());
  Floats most[4] = {sub(set(0.0f), infinity), sub(set(0.0f), infinity), sub(set(0.0f), infinity),
                    sub(set(0.0f), infinity)};
  std::uint32_t bad = 0;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
      const Floats v = load(logits + i + k * kLanes);
      bad |= not_below(v, infinity);
      most[k] = max(most[k], v);
    }
  }
  float found = largest(max(max(most[0], most[1]), max(most[2], most[3])));
  for (; i < count; ++i) {
    bad |= static_cast<std::uint32_t>(!(logits[i] < __builtin_inff()));
    found = logits[i] > found ? logits[i] : found;
  }
  *best = found;
  return bad == 0;
}

static std::size_t next_above(const float* logits, std::size_t first, std::size_t count, float limit) {
  const Floats least = set(limit);
  std::size_t i = first;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const Floats low = max(load(logits + i), load(logits + i + kLanes));
    const Floats high = max(load(logits + i + 2 * kLanes), load(logits + i + 3 * kLanes));
    if (above(max(low, high), least) != 0) break;
  }
  for (; i + kLanes <= count; i += kLanes) {
    const std::uint32_t found = above(load(logits + i), least);
    if (found != 0) return i + static_cast<std::size_t>(__builtin_ctz(found));
  }
  for (; i < count; ++i) {
    if (logits[i] > limit) return i;
  }
  return count;
}

static double sum_exponentials(const float* logits, std::size_t count, double best, double scale) {
  constexpr std::size_t kWide = kLanes / 2;
  const auto weights = [best, scale](const float* from) {
    const Doubles below = mul(sub(widen(from), set_wide(best)), set_wide(scale));
    return exponential_wide(max(below, set_wide(-60.0)));
  };
  Doubles total[4] = {set_wide(0.0), set_wide(0.0), set_wide(0.0), set_wide(0.0)};
  std::size_t i = 0;
  for (; i + 4 * kWide <= count; i += 4 * kWide) {
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) total[k] = add(total[k], weights(logits + i + k * kWide));
  }
  if (i < count) {
    float rest[4 * kWide];
    for (float& logit : rest) logit = -__builtin_inff();
    std::memcpy(rest, logits + i, (count - i) * sizeof(float));
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) total[k] = add(total[k], weights(rest + k * kWide));
  }
  return sum(add(add(total[0], total[1]), add(total[2], total[3])));
}

}  // namespace quarrel::QUARREL_LEVEL
