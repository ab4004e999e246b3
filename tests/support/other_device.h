// The processor under another device's name and limits: what plans and loads do where those are a GPU's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/create.h"

namespace quarrel::test {

// Says that it has copies of its weights for large batches, unless they are left out.
class MirroringBackend final : public CpuBackend {
 public:
  MirroringBackend(CpuDevice& device, const BackendOptions& options, std::size_t bytes)
      : CpuBackend(device, options), bytes_(options.mirrors ? bytes : 0) {}
  std::size_t mirror_bytes() const noexcept override { return bytes_; }
  std::size_t prepared_bytes() const noexcept override { return CpuBackend::prepared_bytes() + bytes_; }

 private:
  const std::size_t bytes_;
};

struct OtherLimits {
  std::size_t memory = 0;                             // 0: what the machine has
  std::vector<ActivationPrecision> activations = {};  // empty: all
  std::size_t mirrors = 0;                            // bytes
};

class OtherDevice final : public Device {
 public:
  explicit OtherDevice(OtherLimits limits)
      : limits_(std::move(limits)), cpu_(make_device({.backend = "cpu", .threads = 2})) {}
  std::string_view name() const noexcept override { return "other"; }
  std::string description() const override { return "other " + cpu_->description(); }
  KvType default_kv_type() const noexcept override { return KvType::f16; }
  bool supports(ActivationPrecision activations) const noexcept override {
    return limits_.activations.empty() ||
           std::ranges::find(limits_.activations, activations) != limits_.activations.end();
  }
  std::size_t memory_available() const override {
    return limits_.memory > 0 ? limits_.memory : cpu_->memory_available();
  }
  std::size_t memory_total() const override { return memory_available(); }
  std::unique_ptr<Backend> make_backend(const BackendOptions& options) override {
    return std::make_unique<MirroringBackend>(dynamic_cast<CpuDevice&>(*cpu_), options, limits_.mirrors);
  }

 private:
  const OtherLimits limits_;
  std::unique_ptr<Device> cpu_;
};

}  // namespace quarrel::test
