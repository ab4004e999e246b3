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

struct OtherLimits {
  std::size_t memory = 0;                             // 0: what the machine has
  std::vector<ActivationPrecision> activations = {};  // empty: all
  std::size_t mirrors = 0;                            // bytes
  bool expert_cache = true;
  bool costly_clocks = false;  // which go on once they were asked for
  std::string name = "other";
};

// Says that it has copies of its weights for large batches, unless they are left out.
class OtherBackend final : public CpuBackend {
 public:
  OtherBackend(CpuDevice& device, const BackendOptions& options, const OtherLimits& limits)
      : CpuBackend(device, options), mirrors_(options.mirrors ? limits.mirrors : 0), limits_(limits) {}
  std::size_t mirror_bytes() const noexcept override { return mirrors_; }
  std::size_t prepared_bytes() const noexcept override { return CpuBackend::prepared_bytes() + mirrors_; }
  std::size_t expert_cache_bytes() const noexcept override {
    return limits_.expert_cache ? CpuBackend::expert_cache_bytes() : 0;
  }
  bool profiling_costs() const noexcept override { return limits_.costly_clocks; }
  void set_profiling(bool on) override {
    if (on || !limits_.costly_clocks) CpuBackend::set_profiling(on);
  }

 private:
  const std::size_t mirrors_;
  const OtherLimits& limits_;
};

class OtherDevice final : public Device {
 public:
  explicit OtherDevice(OtherLimits limits)
      : limits_(std::move(limits)), cpu_(make_device({.backend = "cpu", .threads = 2})) {}
  std::string_view name() const noexcept override { return limits_.name; }
  std::string description() const override { return limits_.name + " on " + cpu_->description(); }
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
    return std::make_unique<OtherBackend>(dynamic_cast<CpuDevice&>(*cpu_), options, limits_);
  }

 private:
  const OtherLimits limits_;
  std::unique_ptr<Device> cpu_;
};

}  // namespace quarrel::test
