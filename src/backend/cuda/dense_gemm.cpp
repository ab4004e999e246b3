#include "backend/cuda/dense_gemm.h"

#include <cublasLt.h>

#include "base/error.h"

namespace quarrel::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check_blas(cublasStatus_t status, const char* op) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorKind::internal, "cuBLASLt, {}: status {}", op, static_cast<int>(status));
}

}  // namespace

struct DenseGemm::Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t in = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  DeviceBuffer workspace{kWorkspaceBytes, "workspace of cuBLASLt"};

  ~Plan() {
    cublasLtMatrixLayoutDestroy(out);
    cublasLtMatrixLayoutDestroy(in);
    cublasLtMatrixLayoutDestroy(weight);
    cublasLtMatmulDescDestroy(op);
    cublasLtDestroy(handle);
  }
};

// cuBLAS counts columns first: it sees out^T = weight * in^T, with the weight transposed.
DenseGemm::DenseGemm(int tokens, int rows, int columns, bool f32_out) : plan_(std::make_unique<Plan>()) {
  const auto m = static_cast<std::uint64_t>(rows);
  const auto n = static_cast<std::uint64_t>(tokens);
  const auto k = static_cast<std::uint64_t>(columns);
  check_blas(cublasLtCreate(&plan_->handle), "create");
  check_blas(cublasLtMatmulDescCreate(&plan_->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(cublasLtMatmulDescSetAttribute(plan_->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
             "describe");
  check_blas(cublasLtMatrixLayoutCreate(&plan_->weight, CUDA_R_16F, k, m, columns), "layout");
  check_blas(cublasLtMatrixLayoutCreate(&plan_->in, CUDA_R_16F, k, n, columns), "layout");
  check_blas(cublasLtMatrixLayoutCreate(&plan_->out, f32_out ? CUDA_R_32F : CUDA_R_16F, m, n, rows), "layout");
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &kWorkspaceBytes, sizeof kWorkspaceBytes),
             "preference");
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(plan_->handle, plan_->op, plan_->weight, plan_->in,
                                                               plan_->out, plan_->out, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  check_blas(status, "choose an algorithm");
  if (found == 0) fail(ErrorKind::internal, "cuBLASLt has no algorithm for {} x {} x {}", tokens, rows, columns);
  plan_->algorithm = result.algo;
}

DenseGemm::~DenseGemm() = default;

void DenseGemm::run(const LaunchContext& context, const std::uint16_t* weight, const std::uint16_t* in, void* out) {
  const float one = 1.0f;
  const float zero = 0.0f;
  check_blas(
      cublasLtMatmul(plan_->handle, plan_->op, &one, weight, plan_->weight, in, plan_->in, &zero, out, plan_->out, out,
                     plan_->out, &plan_->algorithm, plan_->workspace.data(), kWorkspaceBytes, context.stream),
      "multiply");
}

}  // namespace quarrel::cuda
