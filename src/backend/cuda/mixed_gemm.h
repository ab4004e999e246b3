// GEMMs of packed weights and F16 activations on Hopper's own tensor core instructions: experts with many rows, and
// dense matrices with a few dozen. Weights are read in their packed form and decoded to F16 once a thread block, into
// shared memory, so that they need no mirror; sums are F32.
//
// A thread block has 128 weight rows (64 of a gate and the 64 that it gates) and up to 160 input rows of one expert.
// Eight of its warps decode weights, eight multiply. A row's bits depend on the shape of the matrix and on how its
// columns are cut, not on its neighbours.
//
// Activations are first laid down as the tensor cores take them (activation_image.cuh): by a kernel of their own, or by
// the GEMM before.
#pragma once

#include <cstddef>
#include <optional>

#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/packed_gemm.h"

namespace quarrel::cuda {

// Once a process and device, before the first of the others.
void prepare_mixed_gemm(const LaunchContext& context);

// Numbers of F16 that an image takes.
std::size_t image_numbers(int rows, int columns);

// What two calls of grouped_gemm() do: `in` gives the hidden rows, `down` takes them. `in.halves` has room for their
// image, `image` for that of all pairs' input.
bool can_run_mixed_experts(const LaunchContext& context, const GroupedGemmOp& in);
void mixed_experts(const LaunchContext& context, const GroupedGemmOp& in, const GroupedGemmOp& down,
                   std::uint16_t* image);

// Up to how many rows it is faster than decoding a matrix to 16 bits before each GEMM.
inline constexpr int kMostMixedRows = 512;

// What packed_gemm() does, for any number of rows: the columns are cut into slabs so that all multiprocessors have
// something to do, and join_parts() adds the slabs up. None where `part_floats` are too few for one slab.
struct MixedGemmPlan {
  int slab_chunks = 0;
  int slabs = 0;
};
std::optional<MixedGemmPlan> plan_mixed_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                             std::size_t part_floats);
void mixed_gemm(const LaunchContext& context, const PackedGemmOp& op, const MixedGemmPlan& plan, std::uint16_t* image);

}  // namespace quarrel::cuda
