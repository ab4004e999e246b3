// The CPU as a device: the kernels of one instruction-set level, and the threads that run them. Made once, shared by
// the backends of all models; their steps hold its lock one at a time.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/device_lock.h"
#include "base/thread_pool.h"

namespace quarrel {

class CpuDevice final : public Device {
 public:
  // The threads' mode is the device's own.
  CpuDevice(const ThreadOptions& threads, IsaLevel level) : CpuDevice(threads, level, read_cpu_topology()) {}
  CpuDevice(const ThreadOptions& threads, IsaLevel level, CpuTopology topology);

  std::string_view name() const noexcept override { return "cpu"; }
  std::string description() const override;
  KvType default_kv_type() const noexcept override { return KvType::f16; }
  bool supports(ActivationPrecision activations) const noexcept override {
    return activations != ActivationPrecision::f16;
  }
  std::string_view activations_used(ActivationPrecision asked) const noexcept override {
    return name_of(nearest(asked));
  }
  std::size_t memory_available() const override;
  std::size_t memory_total() const override;
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override;

  ThreadPool& pool() noexcept { return pool_; }
  std::size_t workers() const noexcept { return static_cast<std::size_t>(pool_.size()); }
  DeviceLock& lock() noexcept { return lock_; }
  const CpuKernels& kernels() const noexcept { return kernels_; }

  // task(row) for every row below `rows`, shared by the workers.
  template <typename Task>
  void for_rows(std::int64_t rows, const Task& task) {
    pool_.for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) task(static_cast<std::int32_t>(row));
    });
  }

 private:
  // What is used for what is asked for: it is more exact.
  static ActivationPrecision nearest(ActivationPrecision asked) noexcept {
    return asked == ActivationPrecision::f16 ? ActivationPrecision::int8_split : asked;
  }

  IsaLevel level_;
  const CpuKernels& kernels_;
  ThreadPool pool_;
  DeviceLock lock_;
};

}  // namespace quarrel
