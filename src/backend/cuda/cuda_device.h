// One GPU as a Device. Made by the module's factory (cuda_module.h); shared by the backends of several models, each of
// which has a stream of its own.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/nvml.h"

namespace quarrel::cuda {

class CudaDevice final : public Device {
 public:
  // Throws Error(unsupported) with a sentence for people: no driver, too old a driver, no such device.
  explicit CudaDevice(int ordinal);

  std::string_view name() const noexcept override { return "cuda"; }
  std::int32_t ordinal() const noexcept override { return ordinal_; }
  std::string description() const override { return description_; }
  KvType default_kv_type() const noexcept override { return KvType::f16; }
  // Quantised weights are multiplied with a hi/lo int8 split, or with F16 in prompts and large batches.
  bool supports(ActivationPrecision activations) const noexcept override {
    return activations == ActivationPrecision::int8_split || activations == ActivationPrecision::f16;
  }
  std::string_view activations_used(ActivationPrecision asked) const noexcept override {
    return asked == ActivationPrecision::f16 ? "f16" : "int8x2 and f16";
  }
  // Experts share a step's rows among them, and each needs some dozens to be worth its weights.
  std::int32_t batch_rows() const noexcept override { return 2048; }
  std::size_t memory_available() const override;
  std::size_t memory_total() const override { return memory_total_; }
  bool has_own_memory() const noexcept override { return true; }
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override;
  std::optional<DeviceSpeed> measure_speed() override;
  std::optional<DeviceState> state() const override;

  // The calling thread's CUDA calls go to this device from here on.
  void make_current() const;

 private:
  int ordinal_;
  std::string description_;
  std::size_t memory_total_ = 0;
  mutable std::mutex nvml_mutex_;
  mutable std::unique_ptr<Nvml> nvml_;  // opened by who first asks for the state
};

}  // namespace quarrel::cuda
