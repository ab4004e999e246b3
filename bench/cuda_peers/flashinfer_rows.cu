// FlashInfer's attention of single rows over a paged cache, without tensor cores. A row's pages are cut into runs,
// which a second kernel joins.
#include <cuda_fp16.h>

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/paged_rows.cuh"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {
namespace {

using Params = flashinfer::BatchDecodeParams<half, half, half, std::int32_t>;
using Variant = flashinfer::DefaultAttention<false, false, false, false>;
constexpr auto kNoRope = flashinfer::PosEncodingMode::kNone;
constexpr std::uint32_t kGroup = 4;

}  // namespace

PeerCall flashinfer_rows(const PeerRows& rows, const LaunchContext& context) {
  if (rows.heads != static_cast<int>(kGroup) * rows.kv_heads) fail_launch("FlashInfer's rows", "four heads a group");
  const auto memory = std::make_shared<PagedRows>(rows);
  flashinfer::DecodePlanInfo plan;
  check(flashinfer::DecodePlan<kPeerHeadDim, kNoRope, Variant, Params>(
            memory->floats.data(), memory->floats.size(), memory->integers.data(), memory->staged.data(),
            memory->integers.size(), plan, memory->pages.data(), rows.rows, rows.heads, rows.page_size, false,
            context.stream,
            flashinfer::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<kGroup, kPeerHeadDim, kNoRope, Variant,
                                                                            Params>),
        "FlashInfer's plan of rows");
  check(cudaStreamSynchronize(context.stream), "FlashInfer's plan of rows");
  Params params;
  params.q = as_half(rows.q);
  params.paged_kv = memory->cache(rows);
  params.o = as_half(rows.out);
  params.num_qo_heads = rows.heads;
  params.q_stride_n = rows.heads * kPeerHeadDim;
  params.q_stride_h = kPeerHeadDim;
  params.window_left = -1;
  params.sm_scale = rows.scale;
  params.padded_batch_size = plan.padded_batch_size;
  params.request_indices = memory->integers_at(plan.request_indices_offset);
  params.kv_tile_indices = memory->integers_at(plan.kv_tile_indices_offset);
  params.o_indptr = memory->integers_at(plan.o_indptr_offset);
  params.kv_chunk_size_ptr = memory->integers_at(plan.kv_chunk_size_ptr_offset);
  half* parts = nullptr;
  float* sums = nullptr;
  if (plan.split_kv) {
    parts = reinterpret_cast<half*>(memory->floats.data() + plan.v_offset);
    sums = reinterpret_cast<float*>(memory->floats.data() + plan.s_offset);
  }
  return [memory, params, parts, sums](const LaunchContext& launches) {
    check(flashinfer::BatchDecodeWithPagedKVCacheDispatched<kPeerHeadDim, kNoRope, Variant>(
              params, parts, sums, launches.dependent_launch, launches.stream),
          "FlashInfer's rows");
  };
}

}  // namespace quarrel::cuda
