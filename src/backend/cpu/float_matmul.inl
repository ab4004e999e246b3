// Products in F32: for weights that are floats, for types without integer arithmetic, and for activations kept in F32.
// A panel holds a vector of one column of all its rows after the other; a lane sums its row's products in ascending
// order of the columns, so the result does not depend on how panels and rows of activations were put together.

namespace quarrel::QUARREL_LEVEL {

static inline std::size_t float_element_bytes(QuantType type) {
  return type == QuantType::f32 ? 4 : type == QuantType::f16 || type == QuantType::bf16 ? 2 : 0;
}

static std::size_t float_panel_bytes(QuantType type, std::size_t columns) {
  return columns * kPanelRows * float_element_bytes(type);
}

template <typename Element>
static inline void interleave(const PackTask& task) {
  auto* out = reinterpret_cast<Element*>(task.out);
  for (std::size_t row = 0; row < kPanelRows; ++row) {
    const std::byte* from = task.rows + row * task.row_stride;
    for (std::size_t k = 0; k < task.columns; ++k) {
      Element value = 0;
      if (row < task.count) std::memcpy(&value, from + k * sizeof(Element), sizeof value);
      out[k * kPanelRows + row] = value;
    }
  }
}

static void pack_floats(const PackTask& task) {
  if (task.type == QuantType::f32) {
    interleave<float>(task);
  } else {
    interleave<std::uint16_t>(task);
  }
}

static void decode_float_row(QuantType type, const std::byte* panel, std::size_t row, std::size_t columns,
                             float* values) {
  const std::size_t bytes = float_element_bytes(type);
  for (std::size_t k = 0; k < columns; ++k) {
    decode_row(type, panel + (k * kPanelRows + row) * bytes, values + k, 1);
  }
}

template <QuantType kType>
static inline Floats load_column(const std::byte* panel, std::size_t column) {
  const std::size_t at = column * kPanelRows;
  if constexpr (kType == QuantType::f32) {
    return load(reinterpret_cast<const float*>(panel) + at);
  } else if constexpr (kType == QuantType::f16) {
    return load_half(reinterpret_cast<const std::uint16_t*>(panel) + at);
  } else {
    return load_bfloat(reinterpret_cast<const std::uint16_t*>(panel) + at);
  }
}

static inline const float* plain_row(const MatmulTask& task, std::size_t row) {
  return task.plain + (task.row_index == nullptr ? row : task.row_index[row]) * task.plain_stride;
}

// kPanels panels that lie `apart` bytes apart, and kTokens rows of activations from `row` on.
template <QuantType kType, std::size_t kPanels, std::size_t kTokens>
[[gnu::noinline]] static void float_tile(const MatmulTask& task, const std::byte* panels, std::size_t apart,
                                         std::size_t row, float* out, std::size_t count) {
  const float* x[kTokens];
  for (std::size_t t = 0; t < kTokens; ++t) x[t] = plain_row(task, row + t);
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
      weights[p] = load_column<kType>(panels + p * apart, k);
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const Floats value = set(x[t][k]);
#pragma GCC unroll 4
      for (std::size_t p = 0; p < kPanels; ++p) total[p][t] = fma(weights[p], value, total[p][t]);
    }
  };
  constexpr std::size_t kColumnBytes = kPanelRows * (kType == QuantType::f32 ? 4 : 2);
  constexpr std::size_t kLine = 64 / kColumnBytes > 0 ? 64 / kColumnBytes : 1;  // columns
  std::size_t k = 0;
  for (; k + kLine <= task.columns; k += kLine) {
    for (std::size_t p = 0; kTokens <= 2 && p < kPanels; ++p) {
      const std::byte* at = panels + p * apart + k * kColumnBytes;
      prefetch_near(at + 1024);
      prefetch_far(at + 4096);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLine; ++i) step(k + i);
  }
  for (; k < task.columns; ++k) step(k);
#pragma GCC unroll 4
  for (std::size_t p = 0; p < kPanels; ++p) {
    const std::size_t begin = p * kPanelRows;
    if (begin >= count) return;
    const std::size_t rows = count - begin < kPanelRows ? count - begin : kPanelRows;
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      float lanes[kPanelRows];
      store(lanes, total[p][t]);
      std::memcpy(out + (row + t) * task.out_stride + begin, lanes, rows * sizeof(float));
    }
  }
}

template <QuantType kType, std::size_t kPanels>
static inline void float_panels(const MatmulTask& task, const std::byte* panels, std::size_t apart, float* out,
                                std::size_t count) {
  std::size_t row = 0;
  if constexpr (kPanels <= 2) {
    for (; row + kFloatTokens <= task.rows; row += kFloatTokens) {
      float_tile<kType, kPanels, kFloatTokens>(task, panels, apart, row, out, count);
    }
    for (; row + 2 <= task.rows; row += 2) float_tile<kType, kPanels, 2>(task, panels, apart, row, out, count);
  }
  for (; row < task.rows; ++row) float_tile<kType, kPanels, 1>(task, panels, apart, row, out, count);
}

template <QuantType kType>
static void packed_float_matmul(const MatmulTask& task) {
  const std::size_t bytes = float_panel_bytes(kType, task.columns);
  const std::byte* panel = task.weights + task.first / kPanelRows * bytes;
  std::size_t left = task.last - task.first;
  float* out = task.out;
  const auto advance = [&](std::size_t panels) {
    const std::size_t rows = panels * kPanelRows < left ? panels * kPanelRows : left;
    left -= rows;
    out += rows;
    panel += panels * bytes;
  };
  // One row alone needs several panels at once: a lane's sum is one long chain of dependent instructions.
  for (; task.rows == 1 && left > 3 * kPanelRows; advance(4)) {
    float_panels<kType, 4>(task, panel, bytes, out, left);
  }
  for (; left > kPanelRows; advance(2)) float_panels<kType, 2>(task, panel, bytes, out, left);
  for (; left > 0; advance(1)) float_panels<kType, 1>(task, panel, bytes, out, left);
}

// Decodes the panel that begins at row `begin`, column by column of its rows.
static void decode_panel(const MatmulTask& task, std::size_t begin, std::size_t count, float* row_space, float* to);

// From rows of any type, two panels at a time.
static void decoded_float_matmul(const MatmulTask& task) {
  const std::size_t bytes = float_panel_bytes(QuantType::f32, task.columns);
  auto* row_space = reinterpret_cast<float*>(task.scratch + 2 * bytes);
  for (std::size_t begin = task.first; begin < task.last; begin += 2 * kPanelRows) {
    const std::size_t count = task.last - begin;
    for (std::size_t panel = 0; panel < 2 && panel * kPanelRows < count; ++panel) {
      const std::size_t rest = count - panel * kPanelRows;
      decode_panel(task, begin + panel * kPanelRows, rest < kPanelRows ? rest : kPanelRows, row_space,
                   reinterpret_cast<float*>(task.scratch + panel * bytes));
    }
    float* out = task.out + (begin - task.first);
    if (count > kPanelRows) {
      float_panels<QuantType::f32, 2>(task, task.scratch, bytes, out, count);
    } else {
      float_panels<QuantType::f32, 1>(task, task.scratch, bytes, out, count);
    }
  }
}

static void float_matmul(const MatmulTask& task) {
  if (task.packed && task.type == QuantType::f32) return packed_float_matmul<QuantType::f32>(task);
  if (task.packed && task.type == QuantType::f16) return packed_float_matmul<QuantType::f16>(task);
  if (task.packed && task.type == QuantType::bf16) return packed_float_matmul<QuantType::bf16>(task);
  decoded_float_matmul(task);
}

}  // namespace quarrel::QUARREL_LEVEL
