// What the driver's management library says of a device: load, clocks, power. It is opened at run time, so that nothing
// links it, and may be absent.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace quarrel::cuda {

class Nvml {
 public:
  // Of the device at this place of the PCI bus, "0000:3b:00.0".
  explicit Nvml(const std::string& bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Fills in what the library knows. Never throws for want of it: `missing` then says what is the matter. One thread
  // at a time.
  void read(DeviceState& state) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
  std::string missing_;
};

}  // namespace quarrel::cuda
