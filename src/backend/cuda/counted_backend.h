// A CudaBackend that also counts what its ops had to do, where profiling is on: bytes and multiply-adds beside the
// times that its timers take. Under the same rules for threads.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/op_work.h"

namespace quarrel::cuda {

class CountedBackend final : public CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  std::vector<OpTime> profile() const override;

  void embed(const EmbedOp& op) override;
  void qkv(const QkvOp& op) override;
  void attend(const AttendOp& op) override;
  void linear(const LinearOp& op) override;
  void glu(const GluOp& op) override;
  void moe(const MoeOp& op) override;
  void ssm(const SsmOp& op) override;
  void head(const HeadOp& op) override;

 private:
  // Of the step, without padding.
  std::uint64_t rows_of(RowSet rows) const;
  WeightSize size_of(const Weight& weight) const;
  OpWork gemms(std::initializer_list<Weight> weights, std::uint64_t rows, std::uint64_t read = 1) const;
  void count(std::string_view name, const OpWork& work);
};

}  // namespace quarrel::cuda
