// Panels of weights that are floats: one column of all the panel's rows after the other, as the file has them.

namespace quarrel::QUARREL_LEVEL {

// The types whose weights are floats: how a panel holds them, and a column of it as a vector.
template <typename Block>
struct FloatPanel;
template <>
struct FloatPanel<BlockF32> {
  using Element = float;
  static inline Floats load_column(const float* column) { return load(column); }
};
template <>
struct FloatPanel<BlockF16> {
  using Element = std::uint16_t;
  static inline Floats load_column(const std::uint16_t* column) { return load_half(column); }
};
template <>
struct FloatPanel<BlockBf16> {
  using Element = std::uint16_t;
  static inline Floats load_column(const std::uint16_t* column) { return load_bf16(column); }
};

template <typename Block>
static constexpr bool kIsFloat = requires { typename FloatPanel<Block>::Element; };

template <typename Block>
static std::size_t float_panel_bytes(std::size_t columns) {
  return columns * kPanelRows * sizeof(Block);
}

template <typename Block>
static void pack_floats(const PackTask& task) {
  using Element = typename FloatPanel<Block>::Element;
  auto* out = reinterpret_cast<Element*>(task.out);
  for (std::size_t lane = 0; lane < kPanelRows; ++lane) {
    const std::byte* from = task.weight_rows + lane * task.row_stride;
    for (std::size_t k = 0; k < task.columns; ++k) {
      Element value = 0;
      if (lane < task.count) std::memcpy(&value, from + k * sizeof(Element), sizeof value);
      out[k * kPanelRows + lane] = value;
    }
  }
}

template <QuantType kType, typename Block>
static void decode_float_row(const std::byte* panel, std::size_t lane, std::size_t columns, float* values) {
  for (std::size_t k = 0; k < columns; ++k) {
    decode_row(kType, panel + (k * kPanelRows + lane) * sizeof(Block), values + k, 1);
  }
}

}  // namespace quarrel::QUARREL_LEVEL
