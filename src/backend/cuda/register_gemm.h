// GEMM of a few dozen rows with K-quants on Hopper: weights are read once, made integers in F16 in the registers of the
// warp that read them, and multiplied from there, up to 16 rows by `mma`, more by `wgmma`, with activations from shared
// memory.
//
// A thread block has up to 16 tiles of 16 weight rows, one a warp, and all columns or a slab of them. Where it has all
// columns, it does what comes after the GEMM, a gate and what it gates being tiles of one block; else that is left to
// whoever adds up the parts. How many slabs there are depends on the shape and on the number of rows; a row's bits do
// not depend on its neighbours.
#pragma once

#include <cstddef>
#include <optional>

#include "backend/cuda/packed_gemm.h"

namespace quarrel::cuda {

inline constexpr int kMaxRegisterGemmRows = 64;

struct RegisterGemmPlan {
  int block_tiles = 0;  // of each matrix
  int slab_chunks = 0;
  int slabs = 0;
  bool is_paired = false;  // a block has tiles of the gate and of what it gates
  int ring = 0;            // chunks of weights on their way to a warp
  int row_slots = 0;       // chunks of activations on their way to a block; of up to eight rows all of a slab

  bool operator==(const RegisterGemmPlan&) const = default;
};

// None without Hopper's instructions, or where no cut fits the shared memory or `part_floats`. `end` is what is done of
// `op`'s sums; its `parts`, `slabs`, `rows` and `width` are not looked at, here and below.
std::optional<RegisterGemmPlan> plan_register_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                                   const JoinPartsOp& end, std::size_t part_floats);

// Once a process and device, before the first register_gemm().
void prepare_register_gemm(const LaunchContext& context);

// `op.in` is an image (register_image.cuh) of image_rows(op.rows) rows. Returns what is left to be done, if anything:
// join_parts(), or what has that fused.
[[nodiscard]] std::optional<JoinPartsOp> register_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                                       const RegisterGemmPlan& plan, JoinPartsOp end);

// Places of an image for so many rows, and the F16 numbers that it takes.
int image_rows(int rows);
std::size_t register_image_numbers(int rows, int columns);

}  // namespace quarrel::cuda
