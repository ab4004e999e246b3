#include "backend/cpu/cpu_device.h"

#include <fmt/format.h>

#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/float_mode.h"
#include "backend/host_memory.h"

namespace quarrel {

CpuDevice::CpuDevice(const ThreadOptions& threads, IsaLevel level, CpuTopology topology)
    : level_(level),
      kernels_(kernels_of(level)),
      pool_(ThreadOptions{.count = threads.count, .pin = threads.pin, .mode = kFloatThreadMode}, std::move(topology)) {}

std::string CpuDevice::description() const {
  return fmt::format("cpu ({}, {} thread{}{})", level_name(level_), pool_.size(), pool_.size() == 1 ? "" : "s",
                     pool_.pinned() ? ", pinned" : "");
}

std::size_t CpuDevice::memory_available() const { return host_memory_available(); }
std::size_t CpuDevice::memory_total() const { return host_memory_total(); }

std::unique_ptr<Backend> CpuDevice::make_backend(const BackendOptions& options) {
  BackendOptions own = options;
  own.activations = nearest(options.activations);
  return std::make_unique<CpuBackend>(*this, own);
}

}  // namespace quarrel
