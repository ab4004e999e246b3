// Between a file's rows of blocks, the packed order of weight_format.h and F16 or F32 numbers. All launches; nothing
// waits.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/weight_format.h"
#include "quant/types.h"

namespace quarrel::cuda {

// The packed format of a type; none for types that have no fast kernels yet.
std::optional<WeightFormat> weight_format(QuantType type);
QuantType quant_type(WeightFormat format);

// Packs rows [first_row, first_row + rows) of `target`, a multiple of 16 unless they end the matrix, from `blocks` in
// device memory, which begins with row `first_row` as it lies in the file. `target.data` is written.
void repack(const LaunchContext& context, const PackedMatrix& target, const std::byte* blocks, int first_row, int rows);

// out[rows][columns] in F16, rounded once: what a GEMM on 16-bit tensor cores reads.
void decode_to_f16(const LaunchContext& context, const PackedMatrix& matrix, std::uint16_t* out);

// out[r] = scale * row ids[r] of the matrix, F32, rows `stride` apart. An id outside of the matrix gives zeros.
void decode_rows(const LaunchContext& context, const PackedMatrix& matrix, const std::int32_t* ids, int count,
                 float scale, float* out, int stride);

}  // namespace quarrel::cuda
