// GEMM of a few dozen rows with quantised matrices on the 16-bit tensor cores: what lies between the integer GEMV
// and a GEMM on weights in 16 bits. Weights are read once in their packed form, and their codes become F16 in
// registers; activations are F16, scales and sums F32.
//
// The columns are cut into slabs so that a slab's activations fit in shared memory; each warp has a tile of 16 weight
// rows and a slab, and writes its part of the sums. A second kernel adds the parts in ascending order and does what
// comes after the GEMM. How many slabs there are depends on the shape and on the number of rows.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/row_ops.h"
#include "backend/cuda/weight_format.h"
#include "backend/ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxPackedGemmRows = 32;
inline constexpr int kMaxPackedGemmMatrices = 3;

struct PackedGemmOp {
  const std::uint16_t* in = nullptr;  // [rows][columns], F16
  int rows = 0;
  int columns = 0;
  PackedMatrix matrices[kMaxPackedGemmMatrices] = {};  // one below the other
  int matrix_count = 1;
  float* parts = nullptr;  // [slabs][rows][width()]

  int width() const {
    int all = 0;
    for (int i = 0; i < matrix_count; ++i) all += matrices[i].rows;
    return all;
  }
};

// How a GEMM is cut; none where no cut fits the shared memory or `part_floats`.
struct PackedGemmPlan {
  int slab_chunks = 0;
  int slabs = 0;
  int blocks_a_slab = 0;
  int stages = 0;

  bool operator==(const PackedGemmPlan&) const = default;
};
std::optional<PackedGemmPlan> plan_packed_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                               std::size_t part_floats);

// Once a process and device, before the first packed_gemm().
void prepare_packed_gemm(const LaunchContext& context);

void packed_gemm(const LaunchContext& context, const PackedGemmOp& op, const PackedGemmPlan& plan);

enum class PartsEnd : std::uint8_t {
  store,  // out = value
  add,    // out += scale * value
  glu,    // out = activation(first half of the values) * second half
};

struct JoinPartsOp {
  const float* parts = nullptr;  // [slabs][rows][width]
  int slabs = 0;
  int rows = 0;
  int width = 0;
  PartsEnd end = PartsEnd::store;
  const float* bias = nullptr;         // [width]; of a glu that of the first half
  const float* second_bias = nullptr;  // of a glu
  ActivationKind activation = ActivationKind::silu;
  float scale = 1.0f;
  float* out = nullptr;
  int out_stride = 0;
  std::uint16_t* halves = nullptr;  // of a glu: the same in F16; null: not wanted
  int image_rows = 0;               // of register_gemm()'s image that they are; 0: rows one after the other
};
void join_parts(const LaunchContext& context, const JoinPartsOp& op);

}  // namespace quarrel::cuda
