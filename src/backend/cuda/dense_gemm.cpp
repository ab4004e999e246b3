#include "backend/cuda/dense_gemm.h"

#include <cublasLt.h>

#include <map>

#include "backend/cuda/cuda_error.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr std::uint32_t kAlignment = 16;

void check_blas(cublasStatus_t status, const char* op) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* name = cublasLtGetStatusName(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) fail_for_memory(fmt::format("cuBLASLt, {} ({})", op, name), 0);
  // A kernel could not run. If the device is lost, every call says so.
  if (status == CUBLAS_STATUS_EXECUTION_FAILED) {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), op);
  }
  fail(ErrorKind::internal, "cuBLASLt, {}: {}", op, name);
}

// What a shape is described by; destroyed with it.
struct Description {
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t in = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Description() = default;
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  ~Description() {
    if (out != nullptr) cublasLtMatrixLayoutDestroy(out);
    if (in != nullptr) cublasLtMatrixLayoutDestroy(in);
    if (weight != nullptr) cublasLtMatrixLayoutDestroy(weight);
    if (op != nullptr) cublasLtMatmulDescDestroy(op);
  }
};

}  // namespace

struct DenseGemm::Planner {
  cublasLtHandle_t handle = nullptr;
  DeviceBuffer workspace{kWorkspaceBytes, "workspace of cuBLASLt"};
  std::map<GemmShape, Description> plans;

  Planner() { check_blas(cublasLtCreate(&handle), "create"); }
  ~Planner() {
    plans.clear();
    cublasLtDestroy(handle);
  }
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  const Description& plan_of(const GemmShape& shape) {
    const auto known = plans.find(shape);
    if (known != plans.end()) return known->second;
    const auto [made, is_new] = plans.try_emplace(shape);
    try {
      describe(shape, made->second);
    } catch (...) {
      plans.erase(made);
      throw;
    }
    return made->second;
  }

  // cuBLAS counts columns first: it sees out^T = weight * in^T, with the weight transposed.
  void describe(const GemmShape& shape, Description& plan) const {
    const auto m = static_cast<std::uint64_t>(shape.rows);
    const auto n = static_cast<std::uint64_t>(shape.tokens);
    const auto k = static_cast<std::uint64_t>(shape.columns);
    check_blas(cublasLtMatmulDescCreate(&plan.op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(cublasLtMatmulDescSetAttribute(plan.op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
               "describe");
    const std::int64_t stride = shape.out_stride == 0 ? shape.rows : shape.out_stride;
    const std::int64_t in_stride = shape.in_stride == 0 ? shape.columns : shape.in_stride;
    const cudaDataType_t in_type = shape.f32_in ? CUDA_R_32F : CUDA_R_16F;
    check_blas(cublasLtMatrixLayoutCreate(&plan.weight, in_type, k, m, shape.columns), "layout");
    check_blas(cublasLtMatrixLayoutCreate(&plan.in, in_type, k, n, in_stride), "layout");
    check_blas(cublasLtMatrixLayoutCreate(&plan.out, shape.f32_out ? CUDA_R_32F : CUDA_R_16F, m, n, stride), "layout");
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                 &kWorkspaceBytes, sizeof kWorkspaceBytes);
    for (const cublasLtMatmulPreferenceAttributes_t operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) {
        status = cublasLtMatmulPreferenceSetAttribute(preference, operand, &kAlignment, sizeof kAlignment);
      }
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmulAlgoGetHeuristic(handle, plan.op, plan.weight, plan.in, plan.out, plan.out, preference, 1,
                                              &result, &found);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    check_blas(status, "choose an algorithm");
    if (found == 0) {
      fail(ErrorKind::internal, "cuBLASLt has no algorithm for {} x {} x {}", shape.tokens, shape.rows, shape.columns);
    }
    plan.algorithm = result.algo;
  }
};

DenseGemm::DenseGemm() : planner_(std::make_unique<Planner>()) {}
DenseGemm::~DenseGemm() = default;

std::size_t DenseGemm::workspace_bytes() { return kWorkspaceBytes; }

void DenseGemm::run(const LaunchContext& context, GemmShape shape, const void* weight, const void* in, void* out,
                    float scale) {
  // One name for each: what is planned at load is found again.
  if (shape.out_stride == shape.rows) shape.out_stride = 0;
  if (shape.in_stride == shape.columns) shape.in_stride = 0;
  const Description& plan = planner_->plan_of(shape);
  const float added = shape.is_added ? 1.0f : 0.0f;
  check_blas(
      cublasLtMatmul(planner_->handle, plan.op, &scale, weight, plan.weight, in, plan.in, &added, out, plan.out, out,
                     plan.out, &plan.algorithm, planner_->workspace.data(), kWorkspaceBytes, context.stream),
      "multiply");
}

}  // namespace quarrel::cuda
