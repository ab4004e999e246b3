#include "backend/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace quarrel {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

std::uint64_t system_memory(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string rest;
  while (file >> name >> kibibytes && std::getline(file, rest)) {
    if (name == wanted) return kibibytes << 10;
  }
  return kUnknown;
}

std::uint64_t read_number(const char* path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kUnknown;  // "max" is no number: no limit
}

// What the control group's limit leaves. Pages of files that nobody maps any more count as used there, yet the kernel
// takes them back on demand, so they are added.
std::uint64_t group_available() {
  const std::uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  std::uint64_t value = 0;
  std::uint64_t reclaimable = 0;
  while (file >> name >> value) {
    if (name == "inactive_file") reclaimable = value;
  }
  const std::uint64_t held = used - std::min(used, reclaimable);
  return limit - std::min(limit, held);
}

}  // namespace

std::size_t host_memory_available() {
  const std::uint64_t available = std::min(system_memory("MemAvailable:"), group_available());
  return available == kUnknown ? 0 : static_cast<std::size_t>(available);
}

std::size_t host_memory_total() {
  const std::uint64_t total = std::min(system_memory("MemTotal:"), read_number("/sys/fs/cgroup/memory.max"));
  return total == kUnknown ? 0 : static_cast<std::size_t>(total);
}

}  // namespace quarrel
