// A row has one thread block, or on Hopper, where there are many tokens, a cluster of them, each with a slice of the
// tokens; the first one chooses.
#include "backend/cuda/choose_best.cuh"
#include "backend/cuda/choose_drawn.cuh"
#include "backend/cuda/choose_edits.cuh"
#include "backend/cuda/choose_filtered.cuh"
#include "backend/cuda/choose_share.cuh"
#include "backend/cuda/choose_tokens.h"
#include "backend/cuda/choose_typical.cuh"
#include "backend/cuda/launch.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kLeastOfCluster = 1 << 14;  // tokens that are worth more than one block
constexpr int kSharedBytes =
    static_cast<int>(sizeof(DrawSums) > sizeof(WeightBins) ? sizeof(DrawSums) : sizeof(WeightBins));

__global__ void __launch_bounds__(kThreads, 1)
    choose_tokens_kernel(const __grid_constant__ ChooseTokensOp op, int ranks) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ RankShares shares[2];  // of the model's logits, and of what was made of them
  __shared__ Key keys[kMaxCandidates];
  __shared__ double shared_number;
  const int rank = ranks > 1 ? cluster_rank() : 0;
  if (ranks > 1) cluster_barrier();  // all blocks of the row have begun
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x / ranks;
  const std::int32_t target = op.targets[row];
  if (target == kChooseNothing) return;
  float* logits = op.logits + static_cast<std::size_t>(row) * op.vocabulary;
  const int length = (op.vocabulary + ranks - 1) / ranks;
  const Slice slice{logits, rank * length, min((rank + 1) * length, op.vocabulary)};
  const Share model = over_cluster(share_of(slice), rank, ranks, shares[0]);
  const bool bad = model.bad || model.largest == -INFINITY;
  const int edit_place = op.edit_places != nullptr ? op.edit_places[row] : -1;
  const bool is_edited = edit_place >= 0 && !bad;
  const LogitEdits* edits = is_edited ? *op.edits + edit_place : nullptr;
  const TokenDraw draw = op.draws[row];
  if (draw.top > 0 && !bad) {
    if (rank == 0) report_top(logits, op.vocabulary, draw.top, model, keys, op.reports[row].top);
    if (ranks > 1) cluster_barrier();  // nothing is changed before it was looked at
  }
  Share share = model;
  if (is_edited) {
    edit_logits(slice, *edits);
    share = over_cluster(share_of(slice), rank, ranks, shares[1]);
  }
  const bool none_left = share.bad || share.largest == -INFINITY;
  int id = target >= 0 ? target : share.id;
  if (target == kChooseDrawn && !none_left) {
    if (draw.from == kFromBest) {
      if (rank == 0) id = drawn_from_best(logits, op.vocabulary, draw, share.largest, keys);
    } else if (draw.from == kFromTypical) {
      if (rank == 0) id = drawn_from_typical(logits, op.vocabulary, draw, *edits, share, shared, keys);
    } else if (draw.from == kFromSurprise) {
      id = drawn_by_surprise(slice, op.vocabulary, draw, *edits, share, rank, ranks, shared, &shared_number,
                             op.reports[row].mirostat_mu);
    } else if (draw.from == kFromFiltered) {
      id = drawn_from_filtered(slice, op.vocabulary, draw, share.largest, share.id, rank, ranks, shared, keys,
                               &shared_number);
    } else {
      id = drawn_token(logits, op.vocabulary, draw, share.largest, share.id, rank, ranks,
                       *reinterpret_cast<DrawSums*>(shared), [](int) { return true; });
    }
  }
  if (rank != 0) return;
  if (none_left) {
    if (threadIdx.x == 0) {
      op.ids[row] = bad ? kBadLogits : kNoTokenLeft;
      op.logprobs[row] = 0.0f;
    }
    return;
  }
  const float logit = is_edited ? logit_before(logits, *edits, id) : logits[id];
  if (threadIdx.x != 0) return;
  op.ids[row] = id;
  op.logprobs[row] = (logit - model.largest) - logf(model.sum);
}

}  // namespace

void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op) {
  // A matter of the vocabulary alone: the same bits for a row whatever the number of rows.
  const int ranks = context.has_wgmma && op.vocabulary >= kLeastOfCluster ? kMostRanks : 1;
  launch_clusters("choose tokens", context, ranks, choose_tokens_kernel, dim3(static_cast<unsigned>(op.rows * ranks)),
                  dim3(kThreads), kSharedBytes, op, ranks);
}

}  // namespace quarrel::cuda
