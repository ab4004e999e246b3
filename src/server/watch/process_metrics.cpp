#include "server/watch/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/watch/families.h"

namespace quarrel {
namespace {

using prometheus::MetricType;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

void add(std::vector<prometheus::MetricFamily>& families, const char* name, const char* help, MetricType type,
         double value) {
  FamilyMaker family(name, help, type);
  if (type == MetricType::Counter) family.counter({}, value);
  if (type == MetricType::Gauge) family.gauge({}, value);
  family.add_to(families);
}

struct MemoryUse {
  double addresses = 0.0, resident = 0.0;  // bytes
};

std::optional<MemoryUse> memory_use() {
  std::ifstream memory("/proc/self/statm");
  double pages = 0.0, resident = 0.0;
  if (!(memory >> pages >> resident)) return std::nullopt;
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  return MemoryUse{.addresses = pages * page, .resident = resident * page};
}

}  // namespace

std::optional<double> resident_bytes() {
  const auto used = memory_use();
  return used ? std::optional(used->resident) : std::nullopt;
}

std::vector<prometheus::MetricFamily> process_families() {
  std::vector<prometheus::MetricFamily> families;
  rusage used = {};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    add(families, "process_cpu_seconds_total", "Processor time, of all threads", MetricType::Counter,
        seconds(used.ru_utime) + seconds(used.ru_stime));
  }
  if (const auto memory = memory_use()) {
    add(families, "process_virtual_memory_bytes", "Addresses in use", MetricType::Gauge, memory->addresses);
    add(families, "process_resident_memory_bytes", "Memory in use", MetricType::Gauge, memory->resident);
  }
  std::error_code error;
  double open = 0.0;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error)) {
    ++open;
  }
  if (!error && open > 0.0) {
    // One of them was for looking.
    add(families, "process_open_fds", "Open descriptors", MetricType::Gauge, open - 1.0);
  }
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add(families, "process_max_fds", "Descriptors that may be open", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace quarrel
