#include "backend/cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace quarrel::cuda {
namespace {

// The part of nvml.h that is used; its binary interface does not change.
constexpr int kSuccess = 0;
constexpr unsigned kMultiprocessorClock = 1;
constexpr unsigned kMemoryClock = 2;

struct Utilisation {
  unsigned gpu = 0;  // percent of the last moments in which a kernel ran
  unsigned memory = 0;
};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_bus)(const char*, void**) = nullptr;
  int (*utilisation)(void*, Utilisation*) = nullptr;
  int (*clock)(void*, unsigned, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;  // milliwatts
  bool is_begun = false;

  ~Library() {
    if (is_begun) shutdown();
    if (handle != nullptr) ::dlclose(handle);
  }
  template <typename Function>
  bool find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }
  bool find_all() {
    return find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(device_by_bus, "nvmlDeviceGetHandleByPciBusId_v2") &&
           find(utilisation, "nvmlDeviceGetUtilizationRates") && find(clock, "nvmlDeviceGetClockInfo") &&
           find(power, "nvmlDeviceGetPowerUsage");
  }
};

Nvml::Nvml(const std::string& bus_id) : library_(std::make_unique<Library>()) {
  library_->handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_->handle == nullptr) {
    missing_ = "libnvidia-ml.so.1 is not there";
  } else if (!library_->find_all()) {
    missing_ = "libnvidia-ml.so.1 lacks a function";
  } else if (const int status = library_->init(); status != kSuccess) {
    missing_ = fmt::format("libnvidia-ml.so.1 cannot be used (status {})", status);
  } else {
    library_->is_begun = true;
    if (library_->device_by_bus(bus_id.c_str(), &device_) != kSuccess) {
      missing_ = "libnvidia-ml.so.1 does not know the device";
    }
  }
}

Nvml::~Nvml() = default;

void Nvml::read(DeviceState& state) const {
  state.missing = missing_;
  if (!missing_.empty()) return;
  Utilisation used;
  unsigned number = 0;
  if (library_->utilisation(device_, &used) == kSuccess) {
    state.busy = used.gpu / 100.0;
  } else {
    state.missing = "the driver does not tell this device's load";
  }
  if (library_->clock(device_, kMultiprocessorClock, &number) == kSuccess) state.clock_hz = 1e6 * number;
  if (library_->clock(device_, kMemoryClock, &number) == kSuccess) state.memory_clock_hz = 1e6 * number;
  if (library_->power(device_, &number) == kSuccess) state.watts = 1e-3 * number;
}

}  // namespace quarrel::cuda
