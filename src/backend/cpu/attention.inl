// Attention over the paged cache: an online softmax in steps of 64 absolute positions, restarted in every partition of
// 256; partitions are joined in ascending order. Each query goes through the same operations whether its row is alone
// or in a tile, and whether one worker walks all partitions or each has another: how a prompt was cut, who else is in
// the batch and how many threads there are change nothing.
//
// A tile is some queries that share each key or value they load. A score is one chain over the dimensions, lane by lane
// for neighbouring positions, so nothing is summed across lanes but once a step. Positions that a row does not see get
// neither a weight nor a product: what a KV block holds there may be anything.

namespace quarrel::QUARREL_LEVEL {

static constexpr float kLowestScore = -1e30f;  // below every score, and its distance to any of them is finite
static constexpr std::size_t kStepKvBlocks = kAttendStep / kKvBlock;
static constexpr std::size_t kKvBlockVectors = kKvBlock / kLanes;
static constexpr std::size_t kTileQueries = kAccumulators / 2;

static inline Floats load_stored(const float* from) { return load(from); }
static inline Floats load_stored(const std::uint16_t* from) { return load_half(from); }
static inline float widen_stored(float value) { return value; }
static inline float widen_stored(std::uint16_t bits) { return half_to_float(bits); }

static inline float exponential_of(float x) {
  float lanes[kLanes];
  store(lanes, exponential_below(set(x)));
  return lanes[0];
}

static void exponential_row(float* values, std::size_t count) { transform(values, count, exponential_below); }

// ---- Tiles: their sizes are known to the compiler, their cells stay in registers ----

// The largest power of two of cells, each `size` vectors, that `queries` may have in registers; 1 at least.
static constexpr std::size_t cells_beside(std::size_t queries, std::size_t size, std::size_t most) {
  std::size_t cells = most;
  while (cells > 1 && queries * cells * size > kAccumulators) cells /= 2;
  return cells;
}

// scores[query][position] of kKvBlocks KV blocks. Queries come by dimension, [key_dim][kQueries].
template <std::size_t kQueries, std::size_t kKvBlocks, typename Stored>
static inline void score_tile(const float* queries, std::size_t key_dim, const Stored* const* keys,
                              const Stored* const* ahead, float* scores) {
  constexpr std::size_t kVectors = kKvBlocks * kKvBlockVectors;
  const Stored* from[kKvBlocks];
  for (std::size_t kv_block = 0; kv_block < kKvBlocks; ++kv_block) from[kv_block] = keys[kv_block];
  Floats cells[kQueries][kVectors];
#pragma GCC unroll 16
  for (std::size_t query = 0; query < kQueries; ++query) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) cells[query][v] = set(0.0f);
  }
  for (std::size_t d = 0; d < key_dim; ++d) {
    Floats key[kVectors];
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) {
      key[v] = load_stored(from[v / kKvBlockVectors] + d * kKvBlock + v % kKvBlockVectors * kLanes);
    }
    if (ahead != nullptr) {
#pragma GCC unroll 16
      for (std::size_t kv_block = 0; kv_block < kKvBlocks; ++kv_block)
        __builtin_prefetch(ahead[kv_block] + d * kKvBlock);
    }
#pragma GCC unroll 16
    for (std::size_t query = 0; query < kQueries; ++query) {
      const Floats one = set(queries[d * kQueries + query]);
#pragma GCC unroll 16
      for (std::size_t v = 0; v < kVectors; ++v) cells[query][v] = fma(one, key[v], cells[query][v]);
    }
  }
#pragma GCC unroll 16
  for (std::size_t query = 0; query < kQueries; ++query) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) store(scores + query * kAttendStep + v * kLanes, cells[query][v]);
  }
}

// out += weights * values, for positions [first, last) of a step and kVectors vectors of columns.
template <std::size_t kQueries, std::size_t kVectors, typename Stored>
static inline void value_tile(const float* weights, std::size_t first, std::size_t last, const Stored* const* values,
                              const Stored* const* ahead, std::size_t stride, float* out, std::size_t width) {
  Floats cells[kQueries][kVectors];
#pragma GCC unroll 16
  for (std::size_t query = 0; query < kQueries; ++query) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) {
      cells[query][v] = load(out + query * width + v * kLanes);
    }
  }
  for (std::size_t position = first; position < last;) {
    const std::size_t kv_block = position / kKvBlock;
    const std::size_t until = (kv_block + 1) * kKvBlock < last ? (kv_block + 1) * kKvBlock : last;
    const std::size_t place = position % kKvBlock * stride;
    const Stored* from = values[kv_block] + place;
    const Stored* next = ahead == nullptr ? nullptr : ahead[kv_block] + place;
    for (; position < until; ++position, from += stride) {
      Floats value[kVectors];
#pragma GCC unroll 16
      for (std::size_t v = 0; v < kVectors; ++v) value[v] = load_stored(from + v * kLanes);
      if (next != nullptr) {
#pragma GCC unroll 16
        for (std::size_t v = 0; v < kVectors; ++v) __builtin_prefetch(next + v * kLanes);
        next += stride;
      }
#pragma GCC unroll 16
      for (std::size_t query = 0; query < kQueries; ++query) {
        const Floats one = set(weights[query * kAttendStep + position]);
#pragma GCC unroll 16
        for (std::size_t v = 0; v < kVectors; ++v) cells[query][v] = fma(one, value[v], cells[query][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t query = 0; query < kQueries; ++query) {
#pragma GCC unroll 16
    for (std::size_t v = 0; v < kVectors; ++v) {
      store(out + query * width + v * kLanes, cells[query][v]);
    }
  }
}

// ---- A task, and where its numbers lie ----

// Sums of values, largest scores and sums of weights of a task's queries, in one piece of memory.
struct AttendState {
  float* out;  // [queries][width]
  float* largest;
  float* total;
};

static inline AttendState state_at(float* memory, std::size_t queries, std::size_t width) {
  return {memory, memory + queries * width, memory + queries * width + queries};
}

struct Attention {
  const AttendTask& task;
  std::size_t queries, key_dim, value_dim;
  std::size_t width;         // of a query's sums: value_dim in whole vectors
  std::size_t value_stride;  // from a position's values to the next, as a tile reads them
  std::size_t pieces;        // tiles that the queries are cut into
  bool unpack;               // a step is first widened into scratch
  float* packed;             // queries of each piece by dimension, scaled
  float* scores;             // [queries][kAttendStep]
  float* keys;               // a step in F32, when it is unpacked
  float* values;
  float* own;      // a state
  float* another;  // a state

  explicit Attention(const AttendTask& of)
      : task(of),
        queries(static_cast<std::size_t>(of.rows) * static_cast<std::size_t>(of.query_heads)),
        key_dim(static_cast<std::size_t>(of.key_dim)),
        value_dim(static_cast<std::size_t>(of.value_dim)),
        width(padded(value_dim, kVectorFloats)),
        pieces((queries + kTileQueries - 1) / kTileQueries),
        unpack((of.f16 && pieces > 1) || value_dim % kLanes != 0) {
    value_stride = unpack ? width : value_dim;
    packed = of.scratch;
    scores = packed + padded(queries * key_dim, kVectorFloats);
    keys = scores + queries * kAttendStep;
    values = keys + kAttendStep * key_dim;
    own = values + kAttendStep * width;
    another = own + attend_state_floats(queries, value_dim);
  }
  std::size_t piece_begin(std::size_t piece) const { return queries * piece / pieces; }
};

static void pack_queries(const Attention& a) {
  const auto heads = static_cast<std::size_t>(a.task.query_heads);
  for (std::size_t piece = 0; piece < a.pieces; ++piece) {
    const std::size_t begin = a.piece_begin(piece);
    const std::size_t count = a.piece_begin(piece + 1) - begin;
    float* to = a.packed + begin * a.key_dim;
    for (std::size_t query = 0; query < count; ++query) {
      const std::size_t row = (begin + query) / heads;
      const float* from = a.task.q + row * a.task.q_stride + (begin + query) % heads * a.key_dim;
      for (std::size_t d = 0; d < a.key_dim; ++d) to[d * count + query] = from[d] * a.task.scale;
    }
  }
}

// ---- One step of 64 positions ----

// The positions of a step that row r sees, as places in it; nothing if first >= last.
struct Places {
  int first;
  int last;
};
static inline Places seen_in_step(const AttendTask& task, std::int32_t row, std::int32_t start) {
  const std::int32_t first = task.begins[row] - start;
  const std::int32_t last = task.ends[row] - start;
  return {first > 0 ? first : 0, last < kAttendStep ? last : kAttendStep};
}

template <typename Stored>
struct StepKvBlocks {
  const Stored* keys[kStepKvBlocks];
  const Stored* values[kStepKvBlocks];
};

// `function(Count<n>())` for n = count, which is between 1 and kMost.
template <std::size_t kCount>
struct Count {};
template <std::size_t kMost, typename Function>
static inline void with_count(std::size_t count, Function function) {
  if constexpr (kMost == 1) {
    function(Count<1>());
  } else if (count == kMost) {
    function(Count<kMost>());
  } else {
    with_count<kMost - 1>(count, function);
  }
}

// Scores of all queries with KV blocks [first, last) of a step.
template <typename Stored>
static void score_step(const Attention& a, const StepKvBlocks<Stored>& kv_blocks, const StepKvBlocks<Stored>* ahead,
                       std::size_t first, std::size_t last) {
  for (std::size_t piece = 0; piece < a.pieces; ++piece) {
    const std::size_t begin = a.piece_begin(piece);
    const float* queries = a.packed + begin * a.key_dim;
    with_count<kTileQueries>(a.piece_begin(piece + 1) - begin, [&]<std::size_t kQueries>(Count<kQueries>) {
      constexpr std::size_t kKvBlocks = cells_beside(kQueries, kKvBlockVectors, kStepKvBlocks);
      const auto tile = [&]<std::size_t kMany>(Count<kMany>, std::size_t kv_block) {
        score_tile<kQueries, kMany>(queries, a.key_dim, kv_blocks.keys + kv_block,
                                    ahead ? ahead->keys + kv_block : nullptr,
                                    a.scores + begin * kAttendStep + kv_block * kKvBlock);
      };
      std::size_t kv_block = first;
      for (; kv_block + kKvBlocks <= last; kv_block += kKvBlocks) tile(Count<kKvBlocks>(), kv_block);
      for (; kv_block < last; ++kv_block) tile(Count<1>(), kv_block);
    });
  }
}

// Adds positions [first, last) of a step to the sums of some queries.
template <typename Stored>
static void add_values(const Attention& a, const StepKvBlocks<Stored>& kv_blocks, const StepKvBlocks<Stored>* ahead,
                       std::size_t query, std::size_t count, Places places, float* out) {
  if (places.first >= places.last) return;
  const auto first = static_cast<std::size_t>(places.first);
  const auto last = static_cast<std::size_t>(places.last);
  while (count > 0) {
    // As even as they can be cut.
    const std::size_t tiles = (count + kTileQueries - 1) / kTileQueries;
    const std::size_t some = count / tiles;
    with_count<kTileQueries>(some, [&]<std::size_t kQueries>(Count<kQueries>) {
      constexpr std::size_t kVectors = cells_beside(kQueries, 1, 8);
      const auto tile = [&]<std::size_t kMany>(Count<kMany>, std::size_t column) {
        const Stored* from[kStepKvBlocks] = {};
        const Stored* next[kStepKvBlocks] = {};
        for (std::size_t kv_block = first / kKvBlock; kv_block * kKvBlock < last; ++kv_block) {
          from[kv_block] = kv_blocks.values[kv_block] + column;
          if (ahead != nullptr) next[kv_block] = ahead->values[kv_block] + column;
        }
        value_tile<kQueries, kMany>(a.scores + query * kAttendStep, first, last, from, ahead ? next : nullptr,
                                    a.value_stride, out + query * a.width + column, a.width);
      };
      std::size_t column = 0;
      for (; column + kVectors * kLanes <= a.value_dim; column += kVectors * kLanes) tile(Count<kVectors>(), column);
      if constexpr (kVectors > 4) {
        for (; column + 4 * kLanes <= a.value_dim; column += 4 * kLanes) tile(Count<4>(), column);
      }
      for (; column < a.value_dim; column += kLanes) tile(Count<1>(), column);
    });
    query += some;
    count -= some;
  }
}

// Turns a query's scores of positions [first, last) into weights, and joins them to its state.
template <bool kWhole>
static inline void soften(float* scores, int first, int last, float soft_cap, std::size_t width, std::size_t query,
                          const AttendState& state) {
  constexpr int kVectors = kAttendStep / kLanes;
  Floats v[kVectors];
  const auto keep = [=](Floats vector, int at, float other) {
    const int begin = first > at ? first - at : 0;
    const int end = last - at < kLanes ? last - at : kLanes;
    return begin < end ? keep_lanes(vector, set(other), begin, end) : set(other);
  };
  Floats peaks = set(kLowestScore);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    v[i] = load(scores + i * kLanes);
    if (soft_cap > 0.0f) v[i] = mul(set(soft_cap), hyperbolic_tangent(mul(v[i], set(1.0f / soft_cap))));
    if constexpr (!kWhole) v[i] = keep(v[i], i * kLanes, kLowestScore);
    peaks = max(v[i], peaks);  // in this order a score that is no number is passed over, and shows in the weights
  }
  const float peak = largest(peaks);
  const float before = state.largest[query];
  const float now = peak > before ? peak : before;
  Floats totals = set(0.0f);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    v[i] = exponential_below(sub(v[i], set(now)));
    if constexpr (!kWhole) v[i] = keep(v[i], i * kLanes, 0.0f);
    store(scores + i * kLanes, v[i]);
    totals = add(totals, v[i]);
  }
  const float step_total = sum(totals);
  if (now == before) {
    state.total[query] += step_total;
    return;
  }
  const float shrink = exponential_of(before - now);
  state.total[query] = state.total[query] * shrink + step_total;
  state.largest[query] = now;
  float* out = state.out + query * width;
  for (std::size_t i = 0; i < width; i += kLanes) store(out + i, mul(load(out + i), set(shrink)));
}

template <typename Stored>
static void attend_step(const Attention& a, std::int32_t start, std::size_t first_kv_block, std::size_t last_kv_block,
                        const StepKvBlocks<Stored>& kv_blocks, const StepKvBlocks<Stored>* ahead,
                        const AttendState& state) {
  const AttendTask& task = a.task;
  const auto heads = static_cast<std::size_t>(task.query_heads);
  score_step(a, kv_blocks, ahead, first_kv_block, last_kv_block);
  Places common{0, kAttendStep};
  for (std::int32_t row = 0; row < task.rows; ++row) {
    const Places seen = seen_in_step(task, row, start);
    common.first = seen.first > common.first ? seen.first : common.first;
    common.last = seen.last < common.last ? seen.last : common.last;
    if (seen.first >= seen.last) continue;
    const bool whole = seen.first == 0 && seen.last == kAttendStep;
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t query = static_cast<std::size_t>(row) * heads + h;
      (whole ? soften<true> : soften<false>)(a.scores + query * kAttendStep, seen.first, seen.last, task.soft_cap,
                                             a.width, query, state);
    }
  }
  // What all rows see goes through whole tiles; what only some see, before and after it, row by row.
  const bool shared = common.first < common.last;
  const auto alone = [&](bool before) {
    for (std::int32_t row = 0; row < task.rows; ++row) {
      const Places seen = seen_in_step(task, row, start);
      const int first = shared && !before ? common.last : seen.first;
      const int last = shared && before ? common.first : seen.last;
      add_values(a, kv_blocks, ahead, static_cast<std::size_t>(row) * heads, heads, {first, last}, state.out);
    }
  };
  alone(true);
  if (!shared) return;
  add_values(a, kv_blocks, ahead, 0, a.queries, common, state.out);
  alone(false);
}

// ---- Partitions ----

template <typename Stored>
static inline StepKvBlocks<Stored> step_kv_blocks(const AttendTask& task, std::int32_t start, std::size_t first,
                                                  std::size_t last) {
  const std::size_t key_values = kKvBlock * static_cast<std::size_t>(task.key_dim);
  const std::int32_t* table = task.kv_blocks + start / kKvBlock;
  StepKvBlocks<Stored> kv_blocks{};
  for (std::size_t kv_block = first; kv_block < last; ++kv_block) {
    const auto entry = static_cast<std::size_t>(table[kv_block]);
    kv_blocks.keys[kv_block] = reinterpret_cast<const Stored*>(task.base + task.kv_block_bytes * entry);
    kv_blocks.values[kv_block] = kv_blocks.keys[kv_block] + key_values;
  }
  return kv_blocks;
}

// The same numbers in F32, a position's values padded to whole vectors.
template <typename Stored>
static StepKvBlocks<float> unpack_step(const Attention& a, const StepKvBlocks<Stored>& kv_blocks, std::size_t first,
                                       std::size_t last) {
  StepKvBlocks<float> unpacked{};
  for (std::size_t kv_block = first; kv_block < last; ++kv_block) {
    float* keys = a.keys + kv_block * kKvBlock * a.key_dim;
    for (std::size_t i = 0; i < kKvBlock * a.key_dim; i += kLanes)
      store(keys + i, load_stored(kv_blocks.keys[kv_block] + i));
    float* values = a.values + kv_block * kKvBlock * a.width;
    unpacked.keys[kv_block] = keys;
    unpacked.values[kv_block] = values;
    const Stored* from = kv_blocks.values[kv_block];
    for (int position = 0; position < kKvBlock; ++position, from += a.value_dim, values += a.width) {
      std::size_t i = 0;
      for (; i + kLanes <= a.value_dim; i += kLanes) store(values + i, load_stored(from + i));
      for (; i < a.value_dim; ++i) values[i] = widen_stored(from[i]);
      for (; i < a.width; ++i) values[i] = 0.0f;
    }
  }
  return unpacked;
}

// The positions that any row of a task sees, within [begin, end).
static inline Places seen_by_any(const AttendTask& task, std::int32_t begin, std::int32_t end) {
  Places seen{end, begin};
  for (std::int32_t row = 0; row < task.rows; ++row) {
    const std::int32_t first = task.begins[row] > begin ? task.begins[row] : begin;
    const std::int32_t last = task.ends[row] < end ? task.ends[row] : end;
    if (first >= last) continue;
    seen.first = first < seen.first ? first : seen.first;
    seen.last = last > seen.last ? last : seen.last;
  }
  return seen;
}

template <typename Stored>
static void partition_of(const Attention& a, std::int32_t partition, const AttendState& state) {
  for (std::size_t i = 0; i < a.queries * a.width; ++i) state.out[i] = 0.0f;
  for (std::size_t query = 0; query < a.queries; ++query) {
    state.largest[query] = kLowestScore;
    state.total[query] = 0.0f;
  }
  const std::int32_t begin = partition * kAttendPartition;
  const Places seen = seen_by_any(a.task, begin, begin + kAttendPartition);
  for (std::int32_t start = seen.first / kAttendStep * kAttendStep; start < seen.last; start += kAttendStep) {
    const auto first = static_cast<std::size_t>(seen.first > start ? seen.first - start : 0) / kKvBlock;
    const std::size_t places = static_cast<std::size_t>(seen.last - start);
    const std::size_t last = places < kAttendStep ? (places + kKvBlock - 1) / kKvBlock : kStepKvBlocks;
    const StepKvBlocks<Stored> kv_blocks = step_kv_blocks<Stored>(a.task, start, first, last);
    if (a.unpack) {
      attend_step<float>(a, start, first, last, unpack_step(a, kv_blocks, first, last), nullptr, state);
      continue;
    }
    // A lone row reads each number once: the next step's are asked for while this one's are used.
    const bool more = start + 2 * kAttendStep <= seen.last;
    const StepKvBlocks<Stored> ahead =
        more ? step_kv_blocks<Stored>(a.task, start + kAttendStep, 0, kStepKvBlocks) : kv_blocks;
    attend_step<Stored>(a, start, first, last, kv_blocks, more ? &ahead : nullptr, state);
  }
}

static void partition_into(const Attention& a, std::int32_t partition, float* memory) {
  const AttendState state = state_at(memory, a.queries, a.width);
  if (a.task.f16) {
    partition_of<std::uint16_t>(a, partition, state);
  } else {
    partition_of<float>(a, partition, state);
  }
}

// A row's sums begin with those of the first partition it sees; every later one is scaled to the larger peak and added.
static void join_partition(const Attention& a, std::int32_t partition, const AttendState& own,
                           const AttendState& whole) {
  const auto heads = static_cast<std::size_t>(a.task.query_heads);
  for (std::size_t query = 0; query < a.queries; ++query) {
    const std::size_t row = query / heads;
    const std::int32_t first = a.task.begins[row] / kAttendPartition;
    if (partition < first || partition * kAttendPartition >= a.task.ends[row]) continue;
    const float* from = own.out + query * a.width;
    float* to = whole.out + query * a.width;
    if (partition == first) {
      whole.largest[query] = own.largest[query];
      whole.total[query] = own.total[query];
      std::memcpy(to, from, a.width * sizeof(float));
      continue;
    }
    const float peak = own.largest[query] > whole.largest[query] ? own.largest[query] : whole.largest[query];
    const float old_factor = exponential_of(whole.largest[query] - peak);
    const float new_factor = exponential_of(own.largest[query] - peak);
    whole.largest[query] = peak;
    whole.total[query] = whole.total[query] * old_factor + own.total[query] * new_factor;
    for (std::size_t i = 0; i < a.width; i += kLanes) {
      store(to + i, fma(load(from + i), set(new_factor), mul(load(to + i), set(old_factor))));
    }
  }
}

static void finish_queries(const Attention& a, const AttendState& whole) {
  const auto heads = static_cast<std::size_t>(a.task.query_heads);
  for (std::size_t query = 0; query < a.queries; ++query) {
    float total = whole.total[query];
    float factor = 1.0f;
    if (a.task.sinks != nullptr) {
      const float sink = a.task.sinks[query % heads];
      const float peak = sink > whole.largest[query] ? sink : whole.largest[query];
      factor = exponential_of(whole.largest[query] - peak);
      total = total * factor + exponential_of(sink - peak);
    }
    const float share = factor / total;
    const float* from = whole.out + query * a.width;
    float* to = a.task.out + query / heads * a.task.out_stride + query % heads * a.value_dim;
    std::size_t i = 0;
    for (; i + kLanes <= a.value_dim; i += kLanes) store(to + i, mul(load(from + i), set(share)));
    for (; i < a.value_dim; ++i) to[i] = from[i] * share;
  }
}

static void attend_partition(const AttendTask& task, std::int32_t partition, float* state) {
  const Attention a(task);
  pack_queries(a);
  partition_into(a, partition, state);
}

static void attend_join(const AttendTask& task, std::int32_t partition, float* state, float* whole) {
  const Attention a(task);
  join_partition(a, partition, state_at(state, a.queries, a.width), state_at(whole, a.queries, a.width));
}

static void attend_finish(const AttendTask& task, float* whole) {
  const Attention a(task);
  finish_queries(a, state_at(whole, a.queries, a.width));
}

static void attend(const AttendTask& task) {
  const Attention a(task);
  pack_queries(a);
  std::int32_t begin = task.begins[0];
  std::int32_t end = task.ends[0];
  for (std::int32_t row = 1; row < task.rows; ++row) {
    begin = task.begins[row] < begin ? task.begins[row] : begin;
    end = task.ends[row] > end ? task.ends[row] : end;
  }
  const AttendState whole = state_at(a.own, a.queries, a.width);
  std::int32_t partition = begin / kAttendPartition;
  partition_into(a, partition, a.own);
  for (++partition; partition * kAttendPartition < end; ++partition) {
    partition_into(a, partition, a.another);
    join_partition(a, partition, state_at(a.another, a.queries, a.width), whole);
  }
  finish_queries(a, whole);
}

// A key's way into the cache: its values go `stride` places apart. Returns how many were clamped to ±65504.
static std::uint64_t store_half_apart(const float* values, std::uint16_t* out, std::size_t count, std::size_t stride) {
  constexpr float kMost = 65504.0f;
  std::uint64_t clamped = 0;
  for (std::size_t i = 0; i < count; ++i) clamped += values[i] > kMost || values[i] < -kMost;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::uint16_t halves[kLanes];
    store_half(halves, min(set(kMost), max(set(-kMost), load(values + i))));
    for (std::size_t lane = 0; lane < kLanes; ++lane) out[(i + lane) * stride] = halves[lane];
  }
  for (; i < count; ++i) {
    const float v = values[i];
    out[i * stride] = float_to_half(v > kMost ? kMost : v < -kMost ? -kMost : v);
  }
  return clamped;
}

}  // namespace quarrel::QUARREL_LEVEL
