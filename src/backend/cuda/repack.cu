#include "backend/cuda/launch.cuh"
#include "backend/cuda/packed_chunk.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/repack.h"

namespace quarrel::cuda {
namespace {

// ---- What the file's blocks hold: the stored code of a weight, and the record of its row and chunk ----

template <typename Block>
__device__ std::uint32_t nibble_of_32(const Block& block, int i) {
  return i < 16 ? block.nibbles[i] & 15u : block.nibbles[i - 16] >> 4;
}

__device__ std::uint32_t code(const BlockQ4_0& block, int i) { return nibble_of_32(block, i) ^ 8u; }
__device__ std::uint32_t code(const BlockQ4_1& block, int i) { return nibble_of_32(block, i); }
__device__ std::uint32_t code(const BlockQ5_0& block, int i) {
  return (nibble_of_32(block, i) | (block.fifth_bits >> i & 1u) << 4) ^ 16u;
}
__device__ std::uint32_t code(const BlockQ5_1& block, int i) {
  return nibble_of_32(block, i) | (block.fifth_bits >> i & 1u) << 4;
}
__device__ std::uint32_t code(const BlockQ8_0& block, int i) { return static_cast<std::uint8_t>(block.quants[i]); }
__device__ std::uint32_t code(const BlockQ4K& block, int i) {
  return block.nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15u;
}
__device__ std::uint32_t code(const BlockQ5K& block, int i) {
  return (block.nibbles[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15u) | (block.fifth_bits[i % 32] >> (i / 32) & 1u)
                                                                               << 4;
}
__device__ std::uint32_t code(const BlockQ6K& block, int i) {
  const std::uint32_t low = block.nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15u;
  const std::uint32_t high = block.high_bits[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3u;
  return (low | high << 4) ^ 32u;
}

__device__ std::uint32_t code(const BlockMxfp4& block, int i) { return nibble_of_32(block, i); }

template <typename Block>
concept HasMinimum = requires(const Block& block) { block.minimum; };

// Blocks of 32: eight scales, then eight minimums if the type has them.
template <typename Block>
__device__ void write_record(const Block* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  const auto halves = reinterpret_cast<HalfBits*>(chunk + records_offset(format) + row * record_bytes(format));
  for (int step = 0; step < kChunkSteps; ++step) {
    halves[step] = step < count ? blocks[step].scale : HalfBits{0};
    if constexpr (HasMinimum<Block>) halves[kChunkSteps + step] = step < count ? blocks[step].minimum : HalfBits{0};
  }
}

template <typename Block>
__device__ void write_k_record(const Block* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  std::uint8_t* record = chunk + records_offset(format) + row * record_bytes(format);
  const auto halves = reinterpret_cast<HalfBits*>(record);
  halves[0] = count > 0 ? blocks->scale : HalfBits{0};
  halves[1] = count > 0 ? blocks->min_scale : HalfBits{0};
  for (int i = 0; i < 12; ++i) record[4 + i] = count > 0 ? blocks->scales[i] : std::uint8_t{0};
}

__device__ void write_record(const BlockMxfp4* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  std::uint8_t* record = chunk + records_offset(format) + row * record_bytes(format);
  for (int step = 0; step < kChunkSteps; ++step) record[step] = step < count ? blocks[step].exponent : std::uint8_t{0};
}
__device__ void write_record(const BlockQ4K* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  write_k_record(blocks, count, chunk, format, row);
}
__device__ void write_record(const BlockQ5K* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  write_k_record(blocks, count, chunk, format, row);
}
__device__ void write_record(const BlockQ6K* blocks, int count, std::uint8_t* chunk, WeightFormat format, int row) {
  std::uint8_t* record = chunk + records_offset(format) + row * record_bytes(format);
  for (int i = 0; i < 16; ++i) record[i] = count > 0 ? static_cast<std::uint8_t>(blocks->scales[i]) : std::uint8_t{0};
  reinterpret_cast<HalfBits*>(chunk + row_scales_offset(format))[row] = count > 0 ? blocks->scale : HalfBits{0};
}

template <WeightFormat F>
struct FileBlock;
template <>
struct FileBlock<WeightFormat::q4_0> {
  using Type = BlockQ4_0;
};
template <>
struct FileBlock<WeightFormat::q4_1> {
  using Type = BlockQ4_1;
};
template <>
struct FileBlock<WeightFormat::q5_0> {
  using Type = BlockQ5_0;
};
template <>
struct FileBlock<WeightFormat::q5_1> {
  using Type = BlockQ5_1;
};
template <>
struct FileBlock<WeightFormat::q8_0> {
  using Type = BlockQ8_0;
};
template <>
struct FileBlock<WeightFormat::q4_k> {
  using Type = BlockQ4K;
};
template <>
struct FileBlock<WeightFormat::q5_k> {
  using Type = BlockQ5K;
};
template <>
struct FileBlock<WeightFormat::q6_k> {
  using Type = BlockQ6K;
};

template <>
struct FileBlock<WeightFormat::mxfp4> {
  using Type = BlockMxfp4;
};

// ---- Kernels ----

constexpr int kRepackThreads = 512;  // one a byte of a plane
constexpr int kDecodeThreads = 128;  // one a word of a plane

// One thread block a chunk. `blocks` begins with the first row of the first tile.
template <WeightFormat F>
__global__ void __launch_bounds__(kRepackThreads)
    repack_kernel(std::uint8_t* target, const std::byte* blocks, int rows, int columns) {
  using Block = typename FileBlock<F>::Type;
  constexpr int kBlockColumns = static_cast<int>(Block::kWeights);
  wait_for_previous_kernel();
  const int chunks = gridDim.x;
  std::uint8_t* chunk = target + (static_cast<std::size_t>(blockIdx.y) * chunks + blockIdx.x) * chunk_bytes(F);
  const int row_blocks = columns / kBlockColumns;
  const int first_column = blockIdx.x * kChunkColumns;
  const int first_block = first_column / kBlockColumns;
  const auto row_start = [&](int row) {
    return reinterpret_cast<const Block*>(blocks) + static_cast<std::size_t>(blockIdx.y * kTileRows + row) * row_blocks;
  };

  const CodePlace place = place_of(threadIdx.x);
  const bool row_exists = static_cast<int>(blockIdx.y) * kTileRows + place.row < rows;
  std::uint32_t codes[kChunkSteps];
  for (int step = 0; step < kChunkSteps; ++step) {
    const int column = first_column + step * kStepColumns + place.column;
    codes[step] = row_exists && column < columns
                      ? code(row_start(place.row)[column / kBlockColumns], column % kBlockColumns)
                      : 0u;
  }
  constexpr int kBits = code_bits(F);
  if constexpr (kBits == 8) {
    for (int step = 0; step < kChunkSteps; ++step) {
      chunk[step * 512 + threadIdx.x] = static_cast<std::uint8_t>(codes[step]);
    }
  } else if constexpr (F == WeightFormat::mxfp4) {
    // Four neighbouring threads have the four bytes of a word: byte b of it is nibbles 2 b and 2 b + 1 of eight.
    for (int pair = 0; pair < kChunkSteps / 2; ++pair) {
      const std::uint32_t own = codes[2 * pair] | codes[2 * pair + 1] << 4;
      const int first = static_cast<int>(threadIdx.x) % 32 / 4 * 4 + static_cast<int>(threadIdx.x) % 2 * 2;
      const std::uint32_t low = __shfl_sync(~0u, own, first);
      const std::uint32_t high = __shfl_sync(~0u, own, first + 1);
      const int shift = threadIdx.x % 4 / 2 * 4;  // the upper two bytes are of the second step
      chunk[pair * 512 + threadIdx.x] = static_cast<std::uint8_t>((low >> shift & 15u) | (high >> shift & 15u) << 4);
    }
  } else {
    for (int pair = 0; pair < kChunkSteps / 2; ++pair) {
      chunk[pair * 512 + threadIdx.x] =
          static_cast<std::uint8_t>((codes[2 * pair] & 15u) | (codes[2 * pair + 1] & 15u) << 4);
    }
  }
  if constexpr (kBits == 5) {
    std::uint32_t bits = 0;
    for (int step = 0; step < kChunkSteps; ++step) bits |= (codes[step] >> 4) << step;
    chunk[high_bits_offset(F) + threadIdx.x] = static_cast<std::uint8_t>(bits);
  }
  if constexpr (kBits == 6) {
    for (int quad = 0; quad < 2; ++quad) {
      std::uint32_t bits = 0;
      for (int step = 0; step < 4; ++step) bits |= (codes[quad * 4 + step] >> 4) << (2 * step);
      chunk[high_bits_offset(F) + quad * 512 + threadIdx.x] = static_cast<std::uint8_t>(bits);
    }
  }
  if (threadIdx.x < kTileRows) {
    const int row = threadIdx.x;
    const bool exists = static_cast<int>(blockIdx.y) * kTileRows + row < rows;
    write_record(row_start(exists ? row : 0) + first_block, exists ? row_blocks - first_block : 0, chunk, F, row);
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kDecodeThreads)
    decode_kernel(const std::uint8_t* data, int rows, int columns, __half* out) {
  wait_for_previous_kernel();
  const std::uint8_t* chunk = data + (static_cast<std::size_t>(blockIdx.y) * gridDim.x + blockIdx.x) * chunk_bytes(F);
  const CodePlace place = place_of(threadIdx.x * 4);
  const int row = blockIdx.y * kTileRows + place.row;
  if (row >= rows) return;
  for (int step = 0; step < kChunkSteps; ++step) {
    const int in_chunk = step * kStepColumns + place.column;
    const int column = blockIdx.x * kChunkColumns + in_chunk;
    if (column >= columns) return;
    __half2 pairs[2];
    for (int i = 0; i < 2; ++i) {
      pairs[i] = __floats2half2_rn(decoded_weight<F>(chunk, place.row, in_chunk + 2 * i),
                                   decoded_weight<F>(chunk, place.row, in_chunk + 2 * i + 1));
    }
    *reinterpret_cast<uint2*>(out + static_cast<std::size_t>(row) * columns + column) =
        *reinterpret_cast<const uint2*>(pairs);
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(256)
    decode_rows_kernel(const std::uint8_t* data, int rows, int columns, const std::int32_t* ids, float scale,
                       float* out, int stride) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = ids[blockIdx.x];
  const int chunks = (columns + kChunkColumns - 1) / kChunkColumns;
  for (int column = threadIdx.x; column < columns; column += blockDim.x) {
    float value = 0.0f;
    if (row >= 0 && row < rows) {
      const std::size_t number = static_cast<std::size_t>(row / kTileRows) * chunks + column / kChunkColumns;
      value = scale * decoded_weight<F>(data + number * chunk_bytes(F), row % kTileRows, column % kChunkColumns);
    }
    out[static_cast<std::size_t>(blockIdx.x) * stride + column] = value;
  }
}

const std::uint8_t* bytes_of(const PackedMatrix& matrix) { return reinterpret_cast<const std::uint8_t*>(matrix.data); }

dim3 chunk_grid(const PackedMatrix& matrix, int rows) {
  return {static_cast<unsigned>(matrix.chunks()), static_cast<unsigned>((rows + kTileRows - 1) / kTileRows)};
}

}  // namespace

std::optional<WeightFormat> weight_format(QuantType type) {
  switch (type) {
    case QuantType::q4_0: return WeightFormat::q4_0;
    case QuantType::q4_1: return WeightFormat::q4_1;
    case QuantType::q5_0: return WeightFormat::q5_0;
    case QuantType::q5_1: return WeightFormat::q5_1;
    case QuantType::q8_0: return WeightFormat::q8_0;
    case QuantType::q4_k: return WeightFormat::q4_k;
    case QuantType::q5_k: return WeightFormat::q5_k;
    case QuantType::q6_k: return WeightFormat::q6_k;
    case QuantType::mxfp4: return WeightFormat::mxfp4;
    default: return std::nullopt;
  }
}

QuantType quant_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0: return QuantType::q4_0;
    case WeightFormat::q4_1: return QuantType::q4_1;
    case WeightFormat::q5_0: return QuantType::q5_0;
    case WeightFormat::q5_1: return QuantType::q5_1;
    case WeightFormat::q8_0: return QuantType::q8_0;
    case WeightFormat::q4_k: return QuantType::q4_k;
    case WeightFormat::q5_k: return QuantType::q5_k;
    case WeightFormat::mxfp4: return QuantType::mxfp4;
    default: return QuantType::q6_k;
  }
}

void repack(const LaunchContext& context, const PackedMatrix& target, const std::byte* blocks, int first_row,
            int rows) {
  auto* data = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(target.data)) +
               static_cast<std::size_t>(first_row / kTileRows) * static_cast<std::size_t>(target.chunks()) *
                   static_cast<std::size_t>(chunk_bytes(target.format));
  with_expert_format(target.format, [&]<WeightFormat F>() {
    launch("repack", context, repack_kernel<F>, chunk_grid(target, rows), dim3(kRepackThreads), 0, data, blocks, rows,
           target.columns);
  });
}

void decode_to_f16(const LaunchContext& context, const PackedMatrix& matrix, std::uint16_t* out) {
  with_expert_format(matrix.format, [&]<WeightFormat F>() {
    launch("decode to f16", context, decode_kernel<F>, chunk_grid(matrix, matrix.rows), dim3(kDecodeThreads), 0,
           bytes_of(matrix), matrix.rows, matrix.columns, reinterpret_cast<__half*>(out));
  });
}

void decode_rows(const LaunchContext& context, const PackedMatrix& matrix, const std::int32_t* ids, int count,
                 float scale, float* out, int stride) {
  with_expert_format(matrix.format, [&]<WeightFormat F>() {
    launch("decode rows", context, decode_rows_kernel<F>, dim3(static_cast<unsigned>(count)), dim3(256), 0,
           bytes_of(matrix), matrix.rows, matrix.columns, ids, scale, out, stride);
  });
}

}  // namespace quarrel::cuda
