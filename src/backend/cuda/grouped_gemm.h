// Many rows with the experts they chose, on the 16-bit tensor cores: a GEMM an expert, all in one launch, on packed
// weights whose codes become F16 in registers. Which rows an expert has is read on the device (moe_routing.h), so the
// launch depends on the shape of the step alone; thread blocks that find no rows end at once.
//
// A thread block has up to 8 or 32 rows of one expert and 128 or 256 rows of its weights; sums over columns are made in
// an order that depends on the shape alone.
#pragma once

#include "backend/cuda/device_memory.h"
#include "backend/cuda/expert_matrix.h"

namespace quarrel::cuda {

struct GroupedGemmOp {
  const char* name = "experts";
  const std::uint16_t* in = nullptr;  // F16, [rows][columns], or [places][in_stride]
  int in_stride = 0;
  const std::int32_t* starts = nullptr;  // [experts + 1]
  const std::int32_t* order = nullptr;   // [places]: a place's pair; null: its input row is the place itself
  int pairs_a_row = 1;                   // a pair's input row is pair / pairs_a_row
  int experts = 0;
  int pairs = 0;
  ExpertMatrix matrices[2] = {};  // the second one is the gated one of a glu, of the same type and shape
  ExpertEnd end = ExpertEnd::store;
  GateFunction function = {};
  float* out = nullptr;             // [places][stride], of `store`
  std::uint16_t* halves = nullptr;  // the same in F16, of the other ends
  int stride = 0;
};

// Whether the shared memory is large enough for these weights.
bool can_run_grouped_gemm(const LaunchContext& context, const PackedMatrix& matrix);

// Once a process and device, before the first grouped_gemm().
void prepare_grouped_gemm(const LaunchContext& context);

void grouped_gemm(const LaunchContext& context, const GroupedGemmOp& op);

}  // namespace quarrel::cuda
