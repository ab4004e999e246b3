// The GEMM kernels themselves, at every level, for every type: what packing keeps, and that a result depends on its two
// rows alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/aligned_buffer.h"
#include "quant/decode.h"
#include "quant/types.h"

namespace quarrel::test {
namespace {

constexpr std::size_t kColumns = 512;
constexpr std::size_t kWeightRows = 41;  // neither whole panels nor an even number of them

// A shape of which tiles make several blocks of columns and several chunks of rows.
constexpr std::size_t kWideColumns = 4352;
constexpr std::size_t kManyRows = 281;

// Blocks of any bits, drawn again until all their weights are of a size that sums can bear: not so large that they
// overflow, not all so small that a scale loses bits.
std::vector<std::byte> random_weights(QuantType type, std::uint32_t seed, std::size_t rows, std::size_t columns) {
  const std::size_t stride = row_bytes(type_info(type), columns);
  const std::size_t block_bytes = type_info(type).block_bytes;
  const std::size_t block_weights = type_info(type).block_weights;
  std::vector<std::byte> bytes(rows * stride);
  std::mt19937 random(seed);
  std::vector<float> values(block_weights);
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
    for (;;) {
      for (std::size_t i = 0; i < block_bytes; ++i) bytes[at + i] = static_cast<std::byte>(random() & 255);
      decode_row(type, bytes.data() + at, values.data(), block_weights);
      float largest = 0.0f;
      for (const float value : values) largest = std::isnan(value) ? 1e30f : std::max(largest, std::abs(value));
      if (largest > 1e-20f && largest < 1e4f) break;
    }
  }
  return bytes;
}

template <typename Test>
void for_each_case(const Test& test) {
  for (const IsaLevel level : available_levels()) {
    for (const TypeInfo& info : all_types()) {
      SCOPED_TRACE(fmt::format("{} {}", level_name(level), info.name));
      test(kernels_of(level), info.type);
    }
  }
}

class Matrix {
 public:
  Matrix(const CpuKernels& kernels, QuantType type, std::uint32_t seed, std::size_t rows = kWeightRows,
         std::size_t columns = kColumns)
      : kernels_(kernels),
        type_kernels_(kernels.of(type)),
        type_(type),
        rows_(rows),
        columns_(columns),
        source_(random_weights(type, seed, rows, columns)) {
    stride_ = row_bytes(type_info(type), columns_);
    if (type_kernels_.panel_bytes == nullptr) return;
    panel_bytes_ = type_kernels_.panel_bytes(columns_);
    const std::size_t panels = (rows_ + kernels.panel_rows - 1) / kernels.panel_rows;
    packed_ = AlignedBuffer(panels * panel_bytes_, "panels");
    for (std::size_t panel = 0; panel < panels; ++panel) {
      const std::size_t first = panel * kernels.panel_rows;
      type_kernels_.pack({.weight_rows = source_.data() + first * stride_,
                          .row_stride = stride_,
                          .count = std::min(kernels.panel_rows, rows_ - first),
                          .columns = columns_,
                          .out = packed_.data() + panel * panel_bytes_});
    }
  }
  bool packs() const { return panel_bytes_ > 0; }
  const std::byte* row(std::size_t r) const { return source_.data() + r * stride_; }
  const std::byte* panel(std::size_t r) const { return packed_.data() + r / kernels_.panel_rows * panel_bytes_; }

  // The whole matrix, or rows [first, last) of it.
  std::vector<float> gemm_f32(const F32Gemm& task, bool packed, std::size_t first, std::size_t last) const {
    return run(type_kernels_.gemm_f32, task, packed, first, last, gemm_scratch_bytes(columns_));
  }
  std::vector<float> gemm_int8(const Int8Gemm& task, bool packed, std::size_t first, std::size_t last) const {
    return run(type_kernels_.gemm_int8, task, packed, first, last, gemm_scratch_bytes(columns_));
  }
  std::vector<float> gemm_int8_amx(const Int8Gemm& task, bool packed) const {
    return run(type_kernels_.gemm_int8_amx, task, packed, 0, rows_, kernels_.amx_scratch_bytes(columns_));
  }
  std::vector<float> gemm_bf16_amx(const Bf16Gemm& task, bool packed) const {
    return run(type_kernels_.gemm_bf16_amx, task, packed, 0, rows_, kernels_.amx_scratch_bytes(columns_));
  }

 private:
  template <typename Task>
  std::vector<float> run(void (*gemm)(const Task&), Task task, bool packed, std::size_t first, std::size_t last,
                         std::size_t scratch_bytes) const {
    const AlignedBuffer scratch(scratch_bytes, "scratch");
    std::vector<float> out(task.rows * (last - first), -1e30f);
    task.weights = {.data = packed ? packed_.data() : source_.data(),
                    .type = type_,
                    .packed = packed,
                    .columns = columns_,
                    .row_stride = stride_,
                    .first = first,
                    .last = last};
    task.out = {out.data(), last - first};
    task.scratch = scratch.data();
    gemm(task);
    return out;
  }

  const CpuKernels& kernels_;
  const TypeKernels& type_kernels_;
  QuantType type_;
  std::size_t rows_, columns_;
  std::vector<std::byte> source_;
  std::size_t stride_ = 0;
  std::size_t panel_bytes_ = 0;
  AlignedBuffer packed_;
};

// Rows of activations with a few values that stand out, in F32 and in int8.
struct Activations {
  Activations(const CpuKernels& kernels, std::size_t rows, float threshold, std::size_t columns = kColumns)
      : values(rows * columns), memory(int8_bytes(rows, columns), "int8") {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random) * (random() % 61 == 0 ? 9.0f : 1.0f);
    int8 = lay_out_int8(memory.data(), columns);
    for (std::size_t r = 0; r < rows; ++r) {
      kernels.quantize_row(values.data() + r * columns, columns, int8, r, threshold);
    }
  }
  std::vector<float> values;
  AlignedBuffer memory;
  Int8Rows int8;
};

// The backend asks for one function and then calls the others: a type has all of a kind or none.
TEST(Kernels, AreWholeForEveryType) {
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    const TypeKernels& row = kernels.of(type);
    EXPECT_NE(row.gemm_f32, nullptr);
    const bool packs = row.panel_bytes != nullptr;
    EXPECT_EQ(row.pack != nullptr, packs);
    EXPECT_EQ(row.decode_packed != nullptr, packs);
    const bool quantised = type_info(type).block_weights > 1;
    EXPECT_EQ(row.gemm_int8 != nullptr, packs && quantised);
    const bool amx = kernels.to_bf16_row != nullptr;
    EXPECT_EQ(kernels.amx_scratch_bytes != nullptr, amx);
    EXPECT_EQ(row.gemm_int8_amx != nullptr, amx && row.gemm_int8 != nullptr);
    EXPECT_EQ(row.gemm_bf16_amx != nullptr, amx && packs && type != QuantType::f32);
  });
}

TEST(Packing, KeepsEveryBit) {
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    const Matrix matrix(kernels, type, 1);
    if (!matrix.packs()) return;
    EXPECT_EQ(kernels.of(type).panel_bytes(kColumns), kernels.panel_rows * row_bytes(type_info(type), kColumns));
    std::vector<float> expected(kColumns), actual(kColumns);
    for (std::size_t r = 0; r < kWeightRows; ++r) {
      decode_row(type, matrix.row(r), expected.data(), kColumns);
      kernels.of(type).decode_packed(matrix.panel(r), r % kernels.panel_rows, kColumns, actual.data());
      ASSERT_EQ(std::memcmp(expected.data(), actual.data(), kColumns * sizeof(float)), 0) << "row " << r;
    }
  });
}

// Against sums in double of what the weights and the activations stand for.
TEST(Gemm, IsTheSumOfTheProducts) {
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    constexpr std::size_t kTokens = 3;
    const Matrix matrix(kernels, type, 2);
    const Activations x(kernels, kTokens, 0.0f);
    const bool integer = kernels.of(type).gemm_int8 != nullptr;
    const std::vector<float> out =
        integer ? matrix.gemm_int8({.x = &x.int8, .rows = kTokens}, matrix.packs(), 0, kWeightRows)
                : matrix.gemm_f32({.x = x.values.data(), .x_stride = kColumns, .rows = kTokens}, matrix.packs(), 0,
                                  kWeightRows);
    std::vector<float> weights(kColumns);
    for (std::size_t r = 0; r < kWeightRows; ++r) {
      decode_row(type, matrix.row(r), weights.data(), kColumns);
      for (std::size_t t = 0; t < kTokens; ++t) {
        double expected = 0.0;
        double size = 0.0;
        for (std::size_t k = 0; k < kColumns; ++k) {
          const double product = double{weights[k]} * double{x.values[t * kColumns + k]};
          expected += product;
          size += std::abs(product);
        }
        ASSERT_NEAR(out[t * kWeightRows + r], expected, size * (integer ? 1e-4 : 2e-6))
            << "row " << r << " token " << t;
      }
    }
  });
}

// One row alone, a tile, many rows with the weights unpacked, a matrix where it lies, some of its rows: the same bits.
TEST(Gemm, DoesNotDependOnTheNeighbours) {
  constexpr std::size_t kTokens = 29;
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    const Matrix matrix(kernels, type, 3);
    for (const float threshold : {0.0f, 4.0f, 1e30f}) {
      const Activations x(kernels, kTokens, threshold);
      const bool integer = kernels.of(type).gemm_int8 != nullptr;
      if (!integer && threshold > 0.0f) continue;
      const auto run = [&](bool packed, std::size_t row, std::size_t rows, std::size_t first, std::size_t last) {
        if (integer) return matrix.gemm_int8({.x = &x.int8, .first_row = row, .rows = rows}, packed, first, last);
        return matrix.gemm_f32({.x = x.values.data() + row * kColumns, .x_stride = kColumns, .rows = rows}, packed,
                               first, last);
      };
      const std::vector<float> all = run(false, 0, kTokens, 0, kWeightRows);
      const auto expect_part = [&](const std::vector<float>& part, std::size_t row, std::size_t first,
                                   std::size_t last) {
        for (std::size_t i = 0; i < part.size(); ++i) {
          const std::size_t token = row + i / (last - first);
          const std::size_t weight = first + i % (last - first);
          const float expected = all[token * kWeightRows + weight];
          ASSERT_EQ(std::memcmp(&part[i], &expected, sizeof(float)), 0) << "token " << token << " weight " << weight;
        }
      };
      for (const bool packed : {false, true}) {
        if (packed && !matrix.packs()) continue;
        for (std::size_t row = 0; row < kTokens; ++row)
          expect_part(run(packed, row, 1, 0, kWeightRows), row, 0, kWeightRows);
        for (const std::size_t rows : std::initializer_list<std::size_t>{2u, 3u, 5u, 7u, 8u, 12u, 17u, 29u}) {
          for (const std::size_t row : {std::size_t{0}, std::size_t{5}, kTokens - rows}) {
            if (row + rows <= kTokens) expect_part(run(packed, row, rows, 0, kWeightRows), row, 0, kWeightRows);
          }
        }
        expect_part(run(packed, 0, 11, 16, 32), 0, 16, 32);
      }
    }
  });
}

// Tiles of bf16 numbers, where the machine has them: near the sum of the products, and the same bits for a row alone,
// in the middle of others, and with the weights where they lie.
void expect_bf16_tiles(const CpuKernels& kernels, QuantType type, std::size_t weights, std::size_t columns,
                       bool pairs) {
  constexpr std::size_t kTokens = 37;
  const Matrix matrix(kernels, type, 4, weights, columns);
  const Activations x(kernels, kTokens, 0.0f, columns);
  const AlignedBuffer memory(bf16_bytes(kTokens, columns), "bf16");
  const Bf16Rows bf16 = lay_out_bf16(memory.data(), kTokens, columns);
  for (std::size_t r = 0; r < kTokens; ++r) {
    kernels.to_bf16_row(x.values.data() + r * columns, columns, bf16, r, true);
  }
  const auto run = [&](bool packed, std::size_t row, std::size_t rows, std::size_t others = 0) {
    return matrix.gemm_bf16_amx({.x = &bf16, .first_row = row, .skipped = others, .rows = rows, .pairs = pairs},
                                packed);
  };
  const std::vector<float> all = run(false, 0, kTokens);
  std::vector<float> decoded(columns);
  for (std::size_t r = 0; r < weights; ++r) {
    decode_row(type, matrix.row(r), decoded.data(), columns);
    for (std::size_t t = 0; t < kTokens; ++t) {
      double expected = 0.0;
      double squares = 0.0;
      for (std::size_t k = 0; k < columns; ++k) {
        const double product = double{decoded[k]} * double{x.values[t * columns + k]};
        expected += product;
        squares += product * product;
      }
      ASSERT_NEAR(all[t * weights + r], expected, (pairs ? 1e-4 : 2e-2) * std::sqrt(squares) + 1e-30)
          << "row " << r << " token " << t;
    }
  }
  for (const bool packed : {false, true}) {
    if (packed && !matrix.packs()) continue;
    for (const auto& [row, rows] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
             {0, 1}, {16, 1}, {32, 5}, {0, 16}, {16, 17}, {0, 33}, {0, 37}}) {
      const std::vector<float> part = run(packed, row, rows);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + row * weights, part.size() * sizeof(float)), 0)
          << packed << " " << row << "+" << rows;
    }
    // Rows in int8 come first and are left alone.
    for (const std::size_t others : {std::size_t{3}, std::size_t{16}, std::size_t{21}}) {
      const std::vector<float> rest = run(packed, 0, kTokens, others);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSERT_EQ(rest[i], i < others * weights ? -1e30f : all[i]) << others << " " << i / weights;
      }
    }
  }
}

TEST(Gemm, InTilesOfBf16) {
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    if (kernels.of(type).gemm_bf16_amx == nullptr) return;
    const bool wide = type == QuantType::q4_0 || type == QuantType::q6_k || type == QuantType::q2_k;
    expect_bf16_tiles(kernels, type, kWeightRows, kColumns, type == QuantType::f16);
    if (type == QuantType::bf16) expect_bf16_tiles(kernels, type, kWeightRows, kColumns, true);
    if (wide || type == QuantType::f16) {
      expect_bf16_tiles(kernels, type, kManyRows, kWideColumns, type == QuantType::f16);
    }
  });
}

// AMX tiles of int8 are another way to the same bits, wherever the rows begin.
TEST(Gemm, InTilesOfInt8) {
  constexpr std::size_t kTokens = 29;
  for_each_case([](const CpuKernels& kernels, QuantType type) {
    if (kernels.of(type).gemm_int8_amx == nullptr) return;
    const bool wide = type == QuantType::q4_0 || type == QuantType::q6_k || type == QuantType::q3_k;
    const std::size_t weights = wide ? kManyRows : kWeightRows;
    const std::size_t columns = wide ? kWideColumns : kColumns;
    const Matrix matrix(kernels, type, 5, weights, columns);
    for (const float threshold : {0.0f, 4.0f}) {
      const Activations x(kernels, kTokens, threshold, columns);
      for (const bool packed : {false, true}) {
        if (packed && !matrix.packs()) continue;
        for (const auto& [row, rows] :
             std::initializer_list<std::pair<std::size_t, std::size_t>>{{0, 29}, {0, 12}, {12, 9}, {5, 20}, {16, 13}}) {
          const Int8Gemm task{.x = &x.int8, .first_row = row, .rows = rows};
          const std::vector<float> expected = matrix.gemm_int8(task, packed, 0, weights);
          const std::vector<float> actual = matrix.gemm_int8_amx(task, packed);
          ASSERT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0)
              << packed << " " << row << "+" << rows;
        }
      }
    }
  });
}

TEST(Int8Activations, HaveALowPartInOutlierGroups) {
  for (const IsaLevel level : available_levels()) {
    const CpuKernels& kernels = kernels_of(level);
    std::vector<float> values(96, 1.0f);
    values[40] = 20.0f;
    const AlignedBuffer memory(int8_bytes(1, values.size()), "int8");
    const Int8Rows rows = lay_out_int8(memory.data(), values.size());
    const auto low_parts = [&](float threshold) {
      kernels.quantize_row(values.data(), values.size(), rows, 0, threshold);
      std::vector<int> has;
      for (std::size_t g = 0; g < 3; ++g) has.push_back(rows.groups[g].has_low[0]);
      return has;
    };
    EXPECT_EQ(low_parts(0.0f), (std::vector<int>{1, 1, 1}));
    EXPECT_EQ(low_parts(4.0f), (std::vector<int>{0, 1, 0}));
    EXPECT_EQ(low_parts(1e30f), (std::vector<int>{0, 0, 0}));
  }
}

}  // namespace
}  // namespace quarrel::test
