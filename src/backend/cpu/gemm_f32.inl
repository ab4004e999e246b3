// GEMM and GEMV in F32: for weights that are floats, for types without packed panels, and for activations kept in F32.
// A lane sums its weight row's products in ascending order of the columns, so the result does not depend on how panels
// and rows of activations were put together.

namespace quarrel::QUARREL_LEVEL {

// kPanels panels that lie `apart` bytes apart, and kTokens rows of activations from `row` on.
template <typename Block, std::size_t kPanels, std::size_t kTokens>
[[gnu::noinline]] static void f32_tile(const F32Gemm& task, const std::byte* panels, std::size_t apart, std::size_t row,
                                       float* out, std::size_t count) {
  using Element = typename FloatPanel<Block>::Element;
  const std::size_t columns = task.weights.columns;
  const float* x[kTokens];
  for (std::size_t t = 0; t < kTokens; ++t) {
    x[t] = task.x + (task.row_index == nullptr ? row + t : task.row_index[row + t]) * task.x_stride;
  }
  Floats total[kPanels][kTokens];
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) total[p][t] = set(0.0f);
  }
  const auto step = [&](std::size_t k) {
    Floats weights[kPanels];
#pragma GCC unroll 4
    for (std::size_t p = 0; p < kPanels; ++p) {
      weights[p] =
          FloatPanel<Block>::load_column(reinterpret_cast<const Element*>(panels + p * apart) + k * kPanelRows);
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const Floats value = set(x[t][k]);
#pragma GCC unroll 4
      for (std::size_t p = 0; p < kPanels; ++p) total[p][t] = fma(weights[p], value, total[p][t]);
    }
  };
  constexpr std::size_t kColumnBytes = kPanelRows * sizeof(Element);
  constexpr std::size_t kLine = 64 / kColumnBytes > 0 ? 64 / kColumnBytes : 1;  // columns
  std::size_t k = 0;
  for (; k + kLine <= columns; k += kLine) {
    for (std::size_t p = 0; kTokens <= 2 && p < kPanels; ++p) {
      const std::byte* at = panels + p * apart + k * kColumnBytes;
      prefetch_near(at + 1024);
      prefetch_far(at + 4096);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLine; ++i) step(k + i);
  }
  for (; k < columns; ++k) step(k);
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPanels; ++p) {
    const std::size_t begin = p * kPanelRows;
    if (begin >= count) return;
    const std::size_t weight_rows = count - begin < kPanelRows ? count - begin : kPanelRows;
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      float lanes[kPanelRows];
      store(lanes, total[p][t]);
      std::memcpy(out + (row + t) * task.out.stride + begin, lanes, weight_rows * sizeof(float));
    }
  }
}

// All rows of activations with kPanels panels, of which `count` weight rows are wanted.
template <typename Block, std::size_t kPanels>
static inline void f32_panels(const F32Gemm& task, const std::byte* panels, std::size_t apart, float* out,
                              std::size_t count) {
  std::size_t row = 0;
  if constexpr (kPanels <= 2) {
    for (; row + kFloatTokens <= task.rows; row += kFloatTokens) {
      f32_tile<Block, kPanels, kFloatTokens>(task, panels, apart, row, out, count);
    }
    for (; row + 2 <= task.rows; row += 2) f32_tile<Block, kPanels, 2>(task, panels, apart, row, out, count);
  }
  for (; row < task.rows; ++row) f32_tile<Block, kPanels, 1>(task, panels, apart, row, out, count);
}

template <typename Block>
static void gemm_f32_panels(const F32Gemm& task) {
  const WeightRows& weights = task.weights;
  const std::size_t bytes = float_panel_bytes<Block>(weights.columns);
  const std::byte* panel = weights.data + weights.first / kPanelRows * bytes;
  std::size_t left = weights.last - weights.first;
  float* out = task.out.data;
  const auto advance = [&](std::size_t panels) {
    const std::size_t weight_rows = panels * kPanelRows < left ? panels * kPanelRows : left;
    left -= weight_rows;
    out += weight_rows;
    panel += panels * bytes;
  };
  // A GEMV needs several panels at once: a lane's sum is one long chain of dependent instructions.
  for (; task.rows == 1 && left > 3 * kPanelRows; advance(4)) f32_panels<Block, 4>(task, panel, bytes, out, left);
  for (; left > kPanelRows; advance(2)) f32_panels<Block, 2>(task, panel, bytes, out, left);
  while (left > 0) {
    f32_panels<Block, 1>(task, panel, bytes, out, left);
    advance(1);
  }
}

// A way to decode packed panels: TypeKernels::panel_bytes and ::decode_packed.
struct PanelDecoder {
  std::size_t (*panel_bytes)(std::size_t columns);
  void (*decode)(const std::byte* panel, std::size_t lane, std::size_t columns, float* values);
};

// The weight rows from `begin` on as a panel of floats.
static void decode_panel(const WeightRows& weights, const PanelDecoder& decoder, std::size_t begin, std::size_t count,
                         float* lane_space, float* to) {
  const std::byte* panel = nullptr;
  if (weights.packed) panel = weights.data + begin / kPanelRows * decoder.panel_bytes(weights.columns);
  for (std::size_t lane = 0; lane < kPanelRows; ++lane) {
    if (lane >= count) {
      std::memset(lane_space, 0, weights.columns * sizeof(float));
    } else if (weights.packed) {
      decoder.decode(panel, lane, weights.columns, lane_space);
    } else {
      decode_row(weights.type, weights.data + (begin + lane) * weights.row_stride, lane_space, weights.columns);
    }
    for (std::size_t k = 0; k < weights.columns; ++k) to[k * kPanelRows + lane] = lane_space[k];
  }
}

// Weights of any type, decoded on the way, two panels at a time.
static void gemm_f32_decoded(const F32Gemm& task, const PanelDecoder& decoder) {
  const WeightRows& weights = task.weights;
  const std::size_t bytes = float_panel_bytes<BlockF32>(weights.columns);
  auto* lane_space = reinterpret_cast<float*>(task.scratch + 2 * bytes);
  for (std::size_t begin = weights.first; begin < weights.last; begin += 2 * kPanelRows) {
    const std::size_t count = weights.last - begin;
    for (std::size_t panel = 0; panel < 2 && panel * kPanelRows < count; ++panel) {
      const std::size_t rest = count - panel * kPanelRows;
      decode_panel(weights, decoder, begin + panel * kPanelRows, rest < kPanelRows ? rest : kPanelRows, lane_space,
                   reinterpret_cast<float*>(task.scratch + panel * bytes));
    }
    float* out = task.out.data + (begin - weights.first);
    if (count > kPanelRows) {
      f32_panels<BlockF32, 2>(task, task.scratch, bytes, out, count);
    } else {
      f32_panels<BlockF32, 1>(task, task.scratch, bytes, out, count);
    }
  }
}

template <QuantType kType, typename Block>
static void gemm_f32(const F32Gemm& task) {
  if constexpr (kIsFloat<Block>) {
    if (task.weights.packed) return gemm_f32_panels<Block>(task);
  }
  if constexpr (kHasPacked<Block>)
    return gemm_f32_decoded(task, {packed_bytes<Block>, decode_packed_row<kType, Block>});
  gemm_f32_decoded(task, {});
}

}  // namespace quarrel::QUARREL_LEVEL
