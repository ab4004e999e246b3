// FlashInfer's attention of single rows over a paged cache on the tensor cores: its kernel for prompts, with tiles of
// 16 rows, which are here the heads that share a head of keys and values.
#include <cuda_fp16.h>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/paged_rows.cuh"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {
namespace {

using Params = flashinfer::BatchPrefillPagedParams<half, half, half, std::int32_t>;
using Variant = flashinfer::DefaultAttention<false, false, false, false>;
constexpr std::uint32_t kTile = 16;  // what it plans for so few rows; compiled for no other

}  // namespace

PeerCall flashinfer_rows_mma(const PeerRows& rows, const LaunchContext& context) {
  const auto memory = std::make_shared<PagedRows>(rows);
  flashinfer::PrefillPlanInfo plan;
  check(flashinfer::PrefillPlan<std::int32_t>(memory->floats.data(), memory->floats.size(), memory->integers.data(),
                                              memory->staged.data(), memory->integers.size(), plan,
                                              memory->firsts.data(), memory->pages.data(), rows.rows, rows.rows,
                                              rows.heads, rows.kv_heads, kPeerHeadDim, kPeerHeadDim, rows.page_size,
                                              false, sizeof(half), -1, -1, false, 0, 0, context.stream),
        "FlashInfer's plan of rows");
  check(cudaStreamSynchronize(context.stream), "FlashInfer's plan of rows");
  if (plan.cta_tile_q != kTile) fail_launch("FlashInfer's rows", "planned for other tiles");
  Params params;
  params.q = as_half(rows.q);
  params.paged_kv = memory->cache(rows);
  params.q_indptr = memory->device_firsts.as<std::int32_t>();
  params.o = as_half(rows.out);
  params.group_size = flashinfer::uint_fastdiv(rows.heads / rows.kv_heads);
  params.num_qo_heads = rows.heads;
  params.q_stride_n = rows.heads * kPeerHeadDim;
  params.q_stride_h = kPeerHeadDim;
  params.window_left = -1;
  params.sm_scale = rows.scale;
  params.request_indices = memory->integers_at(plan.request_indices_offset);
  params.qo_tile_indices = memory->integers_at(plan.qo_tile_indices_offset);
  params.kv_tile_indices = memory->integers_at(plan.kv_tile_indices_offset);
  params.o_indptr = memory->integers_at(plan.o_indptr_offset);
  params.kv_chunk_size_ptr = memory->integers_at(plan.kv_chunk_size_ptr_offset);
  params.padded_batch_size = plan.padded_batch_size;
  params.max_total_num_rows = plan.total_num_rows;
  half* parts = nullptr;
  float* sums = nullptr;
  if (plan.split_kv) {
    params.merge_indptr = memory->integers_at(plan.merge_indptr_offset);
    parts = reinterpret_cast<half*>(memory->floats.data() + plan.v_offset);
    sums = reinterpret_cast<float*>(memory->floats.data() + plan.s_offset);
  }
  return [memory, params, parts, sums](const LaunchContext& launches) {
    check(flashinfer::BatchPrefillWithPagedKVCacheDispatched<true, kTile, kPeerHeadDim, kPeerHeadDim,
                                                             flashinfer::PosEncodingMode::kNone, false,
                                                             flashinfer::MaskMode::kNone, Variant, Params>(
              params, parts, sums, launches.dependent_launch, launches.stream),
          "FlashInfer's rows on tensor cores");
  };
}

}  // namespace quarrel::cuda
