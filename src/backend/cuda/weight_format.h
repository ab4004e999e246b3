// How quantised weights lie in device memory: in the order in which the tensor cores take them.
//
// A matrix is cut into tiles of 16 rows, a tile into chunks of 256 columns; a chunk is what one warp works on at a time
// and lies in one piece:
//
//   codes     for every two steps of 32 columns 512 bytes: lane l has 16 of them, the four registers of its A operand
//   of
//             mma.m16n8k32, the first step in the low nibbles, the second in the high ones. Codes of eight bits take
//             512 bytes a step.
//             MXFP4 has the nibbles of a register's four weights side by side, the second step's above the first's:
//             they choose from a table.
//   high bits of codes of five or six bits, in the same order: one bit for each of eight steps, or two for each of four
//   records   16 (or 32, or 8) bytes a row: its scales, as exact as in the file
//   Q6_K      has the rows' own scales behind these
//
// Codes of symmetric types are stored in two's complement, so that masking them to the top of a byte gives a signed
// number: a power of two times the weight's integer. A tile's last chunk and a matrix's last tile are filled with
// zeros. The order of rows and columns is the file's, every bit of it is kept, and no type grows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kChunkColumns = 256;
inline constexpr int kStepColumns = 32;
inline constexpr int kChunkSteps = kChunkColumns / kStepColumns;

enum class WeightFormat : std::uint8_t { q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, mxfp4 };
inline constexpr int kWeightFormats = 8;  // that any matrix may have; MXFP4 is for experts alone

constexpr int code_bits(WeightFormat format) {
  switch (format) {
    case WeightFormat::q5_0:
    case WeightFormat::q5_1:
    case WeightFormat::q5_k: return 5;
    case WeightFormat::q6_k: return 6;
    case WeightFormat::q8_0: return 8;
    default: return 4;
  }
}

// True for types without a minimum: their codes are signed.
constexpr bool is_symmetric(WeightFormat format) {
  return format == WeightFormat::q4_0 || format == WeightFormat::q5_0 || format == WeightFormat::q8_0 ||
         format == WeightFormat::q6_k || format == WeightFormat::mxfp4;
}

// True for types with blocks of 256, whose scales are themselves quantised.
constexpr bool is_k_format(WeightFormat format) {
  return format == WeightFormat::q4_k || format == WeightFormat::q5_k || format == WeightFormat::q6_k;
}

constexpr int high_bits_offset(WeightFormat format) { return format == WeightFormat::q8_0 ? 4096 : 2048; }

constexpr int records_offset(WeightFormat format) {
  const int bits = code_bits(format);
  return high_bits_offset(format) + (bits == 5 ? 512 : bits == 6 ? 1024 : 0);
}

constexpr int record_bytes(WeightFormat format) {
  if (format == WeightFormat::mxfp4) return 8;
  return format == WeightFormat::q4_1 || format == WeightFormat::q5_1 ? 32 : 16;
}

constexpr int row_scales_offset(WeightFormat format) {
  return records_offset(format) + kTileRows * record_bytes(format);
}

constexpr int chunk_bytes(WeightFormat format) {
  return row_scales_offset(format) + (format == WeightFormat::q6_k ? kTileRows * 2 : 0);
}

// Calls `action` with the format as a compile-time constant, on the host or on the device.
template <typename Action>
#ifdef __CUDACC__
__host__ __device__
#endif
    void
    with_format(WeightFormat format, const Action& action) {
  switch (format) {
    case WeightFormat::q4_0: return action.template operator()<WeightFormat::q4_0>();
    case WeightFormat::q4_1: return action.template operator()<WeightFormat::q4_1>();
    case WeightFormat::q5_0: return action.template operator()<WeightFormat::q5_0>();
    case WeightFormat::q5_1: return action.template operator()<WeightFormat::q5_1>();
    case WeightFormat::q8_0: return action.template operator()<WeightFormat::q8_0>();
    case WeightFormat::q4_k: return action.template operator()<WeightFormat::q4_k>();
    case WeightFormat::q5_k: return action.template operator()<WeightFormat::q5_k>();
    default: return action.template operator()<WeightFormat::q6_k>();
  }
}

// The same with the formats that only experts have.
template <typename Action>
#ifdef __CUDACC__
__host__ __device__
#endif
    void
    with_expert_format(WeightFormat format, const Action& action) {
  if (format == WeightFormat::mxfp4) return action.template operator()<WeightFormat::mxfp4>();
  with_format(format, action);
}

// A matrix in device memory.
struct PackedMatrix {
  const std::byte* data = nullptr;
  WeightFormat format = WeightFormat::q4_0;
  int rows = 0;
  int columns = 0;

  int tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int chunks() const { return (columns + kChunkColumns - 1) / kChunkColumns; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(tiles()) * static_cast<std::size_t>(chunks()) *
           static_cast<std::size_t>(chunk_bytes(format));
  }
};

}  // namespace quarrel::cuda
