// A layer's experts for few rows, in two launches: all that generated rows of most models need between the router and
// the next layer. The first gives the hidden rows of the chosen experts and of the shared one, split for the integer
// tensor cores; the second multiplies them with the experts' down matrices, weighs and adds them up, and adds the sum
// to the residual. Both find out by themselves, from the router's logits, which experts are chosen, so that the second
// has its first weights on their way while the first still runs. For packed experts whose matrices have one format a
// launch; expert_gemv.h has the others. A row's bits depend on neither its neighbours nor on how many there are.
//
// All launches on the context's stream. The kernel before fused_experts_in() is router_logits().
#pragma once

#include <cstddef>

#include "backend/cuda/activation_split.h"
#include "backend/cuda/expert_matrix.h"
#include "backend/cuda/moe_routing.h"
#include "backend/cuda/row_ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxFusedExpertRows = 16;

struct FusedExpertsOp {
  // Its logits are those of the rows, as many as `input` has. Chosen experts and weights are not written.
  RouteRowsOp route = {};
  SplitInput input = {};
  ExpertMatrix in[2] = {};  // the gate and what it gates, of one format and shape; or one matrix
  int in_count = 1;
  GateFunction function = {};
  ExpertMatrix down = {};
  // The shared expert: matrices of the same formats and without biases. Without data: there is none.
  ExpertMatrix shared_in[2] = {};
  ExpertMatrix shared_down = {};
  const float* shared_values = nullptr;  // [rows][shared_stride]: what a shared expert of another form gave
  int shared_stride = 0;
  std::byte* hidden = nullptr;  // fused_hidden_bytes()
  // out (+)= scale * (weighted sum of the experts + what the shared one gives)
  RowSpan out = {};
  bool is_added = false;
  float scale = 1.0f;  // where it is added

  bool has_shared() const { return shared_down.packed.data != nullptr; }
};

// Room for kMaxFusedExpertRows rows, of `used` experts and a shared one with at most so many hidden values each.
std::size_t fused_hidden_bytes(int used, int widest_hidden);

// Whether its shapes and formats fit these kernels and the shared memory.
bool can_run_fused_experts(const LaunchContext& context, const FusedExpertsOp& op);

// How many rows they take at a time: with a shared expert each row has two multiprocessors at least.
int most_fused_expert_rows(const LaunchContext& context);

// Whether the shared memory has room for the op with just its rows. Where can_run_fused_experts() it has, for all that
// may be taken at a time.
bool fused_experts_have_room(const LaunchContext& context, const FusedExpertsOp& op);

// Once a process and device, before the first of the two.
void prepare_fused_experts(const LaunchContext& context);

void fused_experts_in(const LaunchContext& context, const FusedExpertsOp& op);
// True if the kernel left every multiprocessor one block of the next kernel.
bool fused_experts_down(const LaunchContext& context, const FusedExpertsOp& op);

}  // namespace quarrel::cuda
