// CUTLASS's GEMM for Hopper, of F16 with sums in F32: TMA loads, wgmma, one persistent block a multiprocessor.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/kernel_hardware_info.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {
namespace {

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_256;
using cute::_64;
using cute::Shape;
using Half = cutlass::half_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
constexpr int kAlignment = 8;

// Tokens are its rows, the weight's rows its columns: in and out row-major, the weight, transposed, column-major. Two
// blocks of a cluster share what they read of the weight.
template <typename Tile, typename Mainloop, typename Epilogue>
struct Gemm {
  using Cluster = Shape<_2, _1, _1>;
  using End = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, RowMajor, kAlignment, Half, RowMajor,
      kAlignment, Epilogue>::CollectiveOp;
  using Loop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, RowMajor, kAlignment, Half, ColumnMajor, kAlignment,
      float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename End::SharedStorage))>,
      Mainloop>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Loop, End>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

void check_cutlass(cutlass::Status status) {
  if (status != cutlass::Status::kSuccess) fail_launch("CUTLASS's GEMM", cutlassGetStatusString(status));
}

template <typename Adapter>
struct Planned {
  Adapter adapter;
  DeviceBuffer workspace;
};

template <typename Adapter>
PeerCall planned(const PeerGemm& gemm, int swizzle, const LaunchContext& context) {
  using Kernel = typename Adapter::GemmKernel;
  const auto stride = [](auto kind, int rows, int columns) {
    return cutlass::make_cute_packed_stride(kind, cute::make_shape(rows, columns, 1));
  };
  int device = 0;
  check(cudaGetDevice(&device), "CUTLASS's GEMM");
  // With how many clusters fit at once: it would guess otherwise.
  const auto hardware = cutlass::KernelHardwareInfo::make_kernel_hardware_info<Kernel>(device, context.multiprocessors);
  typename Adapter::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {gemm.tokens, gemm.rows, gemm.columns, 1},
      {reinterpret_cast<const Half*>(gemm.in), stride(typename Kernel::StrideA{}, gemm.tokens, gemm.columns),
       reinterpret_cast<const Half*>(gemm.weight), stride(typename Kernel::StrideB{}, gemm.rows, gemm.columns)},
      {{},
       nullptr,
       stride(typename Kernel::StrideC{}, gemm.tokens, gemm.rows),
       reinterpret_cast<Half*>(gemm.out),
       stride(typename Kernel::StrideD{}, gemm.tokens, gemm.rows)},
      hardware};
  arguments.epilogue.thread.alpha = 1.0f;
  arguments.epilogue.thread.beta = 0.0f;
  arguments.scheduler.max_swizzle_size = swizzle;
  const auto call = std::make_shared<Planned<Adapter>>();
  check_cutlass(Adapter::can_implement(arguments));
  if (const std::size_t bytes = Adapter::get_workspace_size(arguments); bytes > 0) {
    call->workspace = DeviceBuffer(bytes, "CUTLASS's workspace");
  }
  check_cutlass(call->adapter.initialize(arguments, call->workspace.data(), context.stream));
  return [call](const LaunchContext& launches) { check_cutlass(call->adapter.run(launches.stream)); };
}

}  // namespace

PeerCall cutlass_cooperative(const PeerGemm& gemm, int swizzle, const LaunchContext& context) {
  using Built = Gemm<Shape<_128, _256, _64>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                     cutlass::epilogue::TmaWarpSpecializedCooperative>;
  return planned<typename Built::Adapter>(gemm, swizzle, context);
}

PeerCall cutlass_pingpong(const PeerGemm& gemm, int swizzle, const LaunchContext& context) {
  using Built = Gemm<Shape<_128, _128, _64>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                     cutlass::epilogue::TmaWarpSpecialized>;
  return planned<typename Built::Adapter>(gemm, swizzle, context);
}

}  // namespace quarrel::cuda
