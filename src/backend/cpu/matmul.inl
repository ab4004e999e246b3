// Weights times activations. A panel of weight rows is unpacked once into bytes that fit the second-level cache and
// then meets every row of activations, four at a time; a type is only a way to unpack. Each pair of rows goes through
// the same operations in the same order whatever the tile: integer dots exact within a group, F32 sums over groups in
// ascending order lane by lane, one tree at the end.

namespace quarrel::QUARREL_LEVEL {

static constexpr std::size_t kTileRows = 4;     // activations a tile
static constexpr std::size_t kTileWeights = 2;  // weight rows a tile
static constexpr std::size_t kPanelBytes = 192 * 1024;

// The row of activations that a product's row is.
static inline std::size_t source_row(const std::uint32_t* index, std::size_t row) {
  return index == nullptr ? row : index[row];
}

static inline const std::byte* weight_row(const MatmulTask& task, std::size_t row) {
  return task.weights + row * (task.row_stride != 0 ? task.row_stride : task.row_bytes);
}

struct Panel {
  std::uint8_t* bytes;
  float* scales;
  float* offsets;
  std::size_t stride;  // bytes a row
  std::size_t groups;  // scales a row, padded
};

template <int kGroup, bool kWide, bool kTwoDigits, std::size_t kWeights, std::size_t kRows>
static inline void integer_tile(const Panel& panel, std::size_t weight, const QuantizedRows& x,
                                const std::uint32_t* row_index, std::size_t row, float* out, std::size_t out_stride) {
  const float* row_scales = kGroup == 32 ? x.scales32 : x.scales16;
  const float* row_sums = kGroup == 32 ? x.sums32 : x.sums16;
  const std::size_t row_groups = kGroup == 32 ? x.groups32 : x.groups16;
  constexpr int kVectors = 16 * kGroup / kBytes;  // of bytes, for 16 scales
  const std::size_t vectors = panel.stride / kBytes;

  std::size_t source[kRows];
  for (std::size_t r = 0; r < kRows; ++r) source[r] = source_row(row_index, row + r);
  Floats total[kWeights][kRows];
  for (auto& line : total) {
    for (Floats& cell : line) cell = set(0.0f);
  }
  const auto step = [&](const Scales(&scales)[kWeights][kRows], std::size_t vector, int index) {
    for (std::size_t w = 0; w < kWeights; ++w) {
      const Bytes bytes = load_bytes(panel.bytes + (weight + w) * panel.stride + vector * kBytes);
      for (std::size_t r = 0; r < kRows; ++r) {
        const std::size_t place = source[r] * x.stride + vector * kBytes;
        const Ints products =
            kTwoDigits ? dot_two<kWide>(bytes, x.high + place, x.low + place) : dot<kWide>(bytes, x.high + place);
        total[w][r] = fma(to_floats(products), spread<kGroup>(scales[w][r], index), total[w][r]);
      }
    }
  };
  std::size_t group = 0;
  for (std::size_t vector = 0; vector < vectors; vector += kVectors, group += 16) {
    Scales scales[kWeights][kRows];
    for (std::size_t w = 0; w < kWeights; ++w) {
      for (std::size_t r = 0; r < kRows; ++r) {
        scales[w][r] = scale_products(panel.scales + (weight + w) * panel.groups + group,
                                      row_scales + source[r] * row_groups + group);
      }
    }
    if (vector + kVectors <= vectors) {
#pragma GCC unroll kUnroll
      for (int index = 0; index < kVectors; ++index) step(scales, vector + static_cast<std::size_t>(index), index);
    } else {
      for (int index = 0; vector + static_cast<std::size_t>(index) < vectors; ++index) {
        step(scales, vector + static_cast<std::size_t>(index), index);
      }
    }
  }
  for (std::size_t w = 0; w < kWeights; ++w) {
    for (std::size_t r = 0; r < kRows; ++r) {
      Floats offset = set(0.0f);
      for (std::size_t g = 0; g < panel.groups; g += kLanes) {
        offset = fma(load(panel.offsets + (weight + w) * panel.groups + g), load(row_sums + source[r] * row_groups + g),
                     offset);
      }
      out[(row + r) * out_stride + w] = sum(total[w][r]) + sum(offset);
    }
  }
}

// All pairs of a panel's weights and rows [first, last) of one class.
template <int kGroup, bool kWide, bool kTwoDigits>
[[gnu::noinline]] static void integer_panel(const Panel& panel, std::size_t weights, const MatmulTask& task,
                                            std::size_t first, std::size_t last, float* out) {
  const QuantizedRows& x = *task.quantized;
  std::size_t row = first;
  for (; row + kTileRows <= last; row += kTileRows) {
    std::size_t w = 0;
    for (; w + kTileWeights <= weights; w += kTileWeights) {
      integer_tile<kGroup, kWide, kTwoDigits, kTileWeights, kTileRows>(panel, w, x, task.row_index, row, out + w,
                                                                       task.out_stride);
    }
    for (; w < weights; ++w) {
      integer_tile<kGroup, kWide, kTwoDigits, 1, kTileRows>(panel, w, x, task.row_index, row, out + w, task.out_stride);
    }
  }
  for (; row < last; ++row) {
    std::size_t w = 0;
    for (; w + kTileWeights <= weights; w += kTileWeights) {
      integer_tile<kGroup, kWide, kTwoDigits, kTileWeights, 1>(panel, w, x, task.row_index, row, out + w,
                                                               task.out_stride);
    }
    for (; w < weights; ++w) {
      integer_tile<kGroup, kWide, kTwoDigits, 1, 1>(panel, w, x, task.row_index, row, out + w, task.out_stride);
    }
  }
}

template <typename Block>
static void integer_matmul(const MatmulTask& task) {
  using Type = Unpack<Block>;
  constexpr std::size_t kGroups = Block::kWeights / Type::kGroup;  // a block
  const std::size_t stride = padded(task.columns, kRowPadding);
  const std::size_t groups = padded(stride / Type::kGroup, kGroupPadding);
  const std::size_t used_groups = task.columns / Type::kGroup;
  const std::size_t row_cost = stride + 2 * groups * sizeof(float);
  // With few rows the unpacked bytes should still be in the first-level cache when they are used.
  const std::size_t budget = task.rows <= kTileRows ? 16 * 1024 : kPanelBytes;
  std::size_t most = budget / row_cost / kTileWeights * kTileWeights;
  if (most < kTileWeights) most = kTileWeights;
  if (most > 32) most = 32;

  Panel panel;
  panel.stride = stride;
  panel.groups = groups;
  panel.scales = reinterpret_cast<float*>(task.scratch);
  panel.offsets = panel.scales + most * groups;
  panel.bytes = reinterpret_cast<std::uint8_t*>(panel.offsets + most * groups);
  for (std::size_t begin = task.first; begin < task.last; begin += most) {
    const std::size_t weights = task.last - begin < most ? task.last - begin : most;
    for (std::size_t w = 0; w < weights; ++w) {
      const std::byte* from = weight_row(task, begin + w);
      UnpackedRow to{panel.bytes + w * stride, panel.scales + w * groups, panel.offsets + w * groups};
      for (std::size_t g = used_groups; g < groups; ++g) to.scales[g] = to.offsets[g] = 0.0f;
      for (std::size_t i = task.columns; i < stride; ++i) to.bytes[i] = 0;
      for (std::size_t done = 0; done < task.columns; done += Block::kWeights) {
        Type::block(*reinterpret_cast<const Block*>(from), to);
        from += sizeof(Block);
        to.bytes += Block::kWeights;
        to.scales += kGroups;
        to.offsets += kGroups;
      }
    }
    constexpr bool kWide = Type::kWide && kWideWeightsDiffer;
    float* out = task.out + begin;
    integer_panel<Type::kGroup, kWide, true>(panel, weights, task, 0, task.two_digit_rows, out);
    integer_panel<Type::kGroup, kWide, false>(panel, weights, task, task.two_digit_rows, task.rows, out);
  }
}

template <std::size_t kWeights, std::size_t kRows>
static inline void float_tile(const float* weights, std::size_t stride, const MatmulTask& task, std::size_t row,
                              float* out) {
  const float* rows[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    rows[r] = task.plain + source_row(task.row_index, row + r) * task.plain_stride;
  }
  Floats total[kWeights][kRows];
  for (auto& line : total) {
    for (Floats& cell : line) cell = set(0.0f);
  }
  std::size_t i = 0;
  for (; i + kLanes <= task.columns; i += kLanes) {
    for (std::size_t w = 0; w < kWeights; ++w) {
      const Floats weight = load(weights + w * stride + i);
      for (std::size_t r = 0; r < kRows; ++r) {
        total[w][r] = fma(weight, load(rows[r] + i), total[w][r]);
      }
    }
  }
  for (std::size_t w = 0; w < kWeights; ++w) {
    for (std::size_t r = 0; r < kRows; ++r) {
      float result = sum(total[w][r]);
      for (std::size_t k = i; k < task.columns; ++k) {
        result += weights[w * stride + k] * rows[r][k];
      }
      out[(row + r) * task.out_stride + w] = result;
    }
  }
}

static inline void decode_floats(const MatmulTask& task, std::size_t weight, float* to) {
  const std::byte* from = weight_row(task, weight);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  if (task.type == QuantType::f32) {
    std::memcpy(to, from, task.columns * sizeof(float));
    return;
  }
  std::size_t i = 0;
  if (task.type == QuantType::f16) {
    for (; i + kLanes <= task.columns; i += kLanes) store(to + i, load_half(halves + i));
  } else if (task.type == QuantType::bf16) {
    for (; i + kLanes <= task.columns; i += kLanes) store(to + i, load_bfloat(halves + i));
  } else {
    decode_row(task.type, from, to, task.columns);
    return;
  }
  decode_row(task.type, from + 2 * i, to + i, task.columns - i);
}

// F32 arithmetic: for weights that are floats, for types without an Unpack, and for activations kept in F32.
static void float_matmul(const MatmulTask& task) {
  const std::size_t stride = padded(task.columns, kGroupPadding);
  auto* decoded = reinterpret_cast<float*>(task.scratch);
  for (std::size_t begin = task.first; begin < task.last; begin += kTileWeights) {
    const std::size_t weights = task.last - begin < kTileWeights ? task.last - begin : kTileWeights;
    for (std::size_t w = 0; w < weights; ++w) decode_floats(task, begin + w, decoded + w * stride);
    float* out = task.out + begin;
    std::size_t row = 0;
    if (weights == kTileWeights) {
      for (; row + kTileRows <= task.rows; row += kTileRows) {
        float_tile<kTileWeights, kTileRows>(decoded, stride, task, row, out);
      }
      for (; row < task.rows; ++row) float_tile<kTileWeights, 1>(decoded, stride, task, row, out);
    } else {
      for (; row < task.rows; ++row) float_tile<1, 1>(decoded, stride, task, row, out);
    }
  }
}

struct IntegerRow {
  QuantType type;
  void (*matmul)(const MatmulTask&);
};
static constexpr IntegerRow kIntegerTypes[] = {
    {QuantType::q4_0, integer_matmul<BlockQ4_0>},    {QuantType::q4_1, integer_matmul<BlockQ4_1>},
    {QuantType::q5_0, integer_matmul<BlockQ5_0>},    {QuantType::q5_1, integer_matmul<BlockQ5_1>},
    {QuantType::q8_0, integer_matmul<BlockQ8_0>},    {QuantType::q2_k, integer_matmul<BlockQ2K>},
    {QuantType::q3_k, integer_matmul<BlockQ3K>},     {QuantType::q4_k, integer_matmul<BlockQ4K>},
    {QuantType::q5_k, integer_matmul<BlockQ5K>},     {QuantType::q6_k, integer_matmul<BlockQ6K>},
    {QuantType::q8_k, integer_matmul<BlockQ8K>},     {QuantType::iq4_nl, integer_matmul<BlockIq4Nl>},
    {QuantType::iq4_xs, integer_matmul<BlockIq4Xs>}, {QuantType::mxfp4, integer_matmul<BlockMxfp4>},
    {QuantType::tq2_0, integer_matmul<BlockTq2_0>},  {QuantType::mxfp4_pairs, integer_matmul<BlockMxfp4Pairs>},
};

static bool has_integer_kernel(QuantType type) {
  for (const IntegerRow& row : kIntegerTypes) {
    if (row.type == type) return true;
  }
  return false;
}

static void matmul(const MatmulTask& task) {
  if (task.quantized != nullptr) {
    for (const IntegerRow& row : kIntegerTypes) {
      if (row.type == task.type) return row.matmul(task);
    }
  }
  float_matmul(task);
}

}  // namespace quarrel::QUARREL_LEVEL
