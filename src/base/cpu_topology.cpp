#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>

#include "base/as_size.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostText = 64 * 1024;
constexpr std::size_t kMostNodes = 1024;
constexpr int kMostQuota = 1 << 20;

// The file without blanks at its end; none if it cannot be read or is longer than such a file ever is.
std::optional<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostText + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const auto got = static_cast<std::size_t>(file.gcount());
  if (file.bad() || got == 0 || got > kMostText) return std::nullopt;
  text.resize(got);
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> read_number(const fs::path& path) {
  const std::optional<std::string> text = read_text(path);
  return text ? parse_number(*text) : std::nullopt;
}

std::optional<int> parse_cpu(std::string_view text) {
  const std::optional<std::int64_t> value = parse_number(text);
  if (!value || *value < 0 || *value >= CpuMask::kMost) return std::nullopt;
  return static_cast<int>(*value);
}

// "0-3,8,10-11"; none unless all of it makes sense.
std::optional<CpuMask> parse_list(std::string_view text) {
  CpuMask mask;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = part.find('-');
    const std::optional<int> first = parse_cpu(part.substr(0, dash));
    const std::optional<int> last = dash == std::string_view::npos ? first : parse_cpu(part.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) mask.add(cpu);
  }
  return mask;
}

std::vector<int> numbers(const CpuMask& mask) {
  std::vector<int> result;
  result.reserve(as_size(mask.count()));
  for (int cpu = 0; cpu < CpuMask::kMost; ++cpu) {
    if (mask.contains(cpu)) result.push_back(cpu);
  }
  return result;
}

// ---- Cores ----

// A core goes by the number of its first processor: from the list of those that share it, else from the package's and
// the core's numbers, else every processor is a core.
class Cores {
 public:
  explicit Cores(fs::path folder) : folder_(std::move(folder)) {}

  bool online(int cpu) const { return read_number(file(cpu, "online")).value_or(1) != 0; }

  int core_of(int cpu) {
    if (const auto text = read_text(file(cpu, "topology/thread_siblings_list"))) {
      const std::optional<CpuMask> siblings = parse_list(*text);
      if (siblings && siblings->contains(cpu)) return numbers(*siblings).front();
    }
    const std::optional<std::int64_t> package = read_number(file(cpu, "topology/physical_package_id"));
    const std::optional<std::int64_t> core = read_number(file(cpu, "topology/core_id"));
    if (!package || !core || *core < 0) return cpu;
    return by_number_.emplace(std::pair{*package, *core}, cpu).first->second;
  }

 private:
  fs::path file(int cpu, const char* name) const { return folder_ / ("cpu" + std::to_string(cpu)) / name; }

  fs::path folder_;
  std::map<std::pair<std::int64_t, std::int64_t>, int> by_number_;
};

// ---- Nodes ----

// The processors of each node, by the node's number.
std::map<int, CpuMask> read_nodes(const fs::path& folder) {
  std::map<int, CpuMask> nodes;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("node") || nodes.size() >= kMostNodes) continue;
    const std::optional<int> number = parse_cpu(std::string_view(name).substr(4));
    const std::optional<std::string> text = read_text(entry->path() / "cpulist");
    if (!number || !text) continue;
    if (const std::optional<CpuMask> mask = parse_list(*text)) nodes.emplace(*number, *mask);
  }
  return nodes;
}

// Gives every processor its node, or all of them the same if some have none.
void assign_nodes(const std::map<int, CpuMask>& nodes, std::vector<LogicalCpu>& cpus) {
  for (LogicalCpu& cpu : cpus) {
    const auto found = std::ranges::find_if(nodes, [&](const auto& node) { return node.second.contains(cpu.id); });
    if (found == nodes.end()) {
      for (LogicalCpu& each : cpus) each.node = 0;
      return;
    }
    cpu.node = found->first;
  }
}

// ---- Quotas ----

using Limit = std::optional<double>;  // in processors

Limit limit_of(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // version 1 writes -1 for none
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// "200000 100000", or "max 100000" where there is no limit.
Limit limit_of_version2(const fs::path& folder) {
  const std::optional<std::string> text = read_text(folder / "cpu.max");
  if (!text) return std::nullopt;
  const std::size_t blank = std::min(text->find(' '), text->size());
  return limit_of(parse_number(std::string_view(*text).substr(0, blank)),
                  parse_number(std::string_view(*text).substr(std::min(blank + 1, text->size()))));
}

Limit limit_of_version1(const fs::path& folder) {
  return limit_of(read_number(folder / "cpu.cfs_quota_us"), read_number(folder / "cpu.cfs_period_us"));
}

Limit smaller(Limit a, Limit b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// The tightest limit from a group up to where the hierarchy is mounted: each of them holds. A container may be told its
// path on the host, of which it sees the end alone, as the root; and a path that leads out of the mount is none.
Limit tightest(const fs::path& mount, const fs::path& group, Limit (*limit_of_folder)(const fs::path&)) {
  Limit limit = limit_of_folder(mount);
  fs::path folder = mount;
  for (const fs::path& part : group.relative_path()) {
    if (part == "..") break;
    folder /= part;
    limit = smaller(limit, limit_of_folder(folder));
  }
  return limit;
}

bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// The limit for one line of /proc/self/cgroup, "number:controllers:path"; version 2 names no controllers.
Limit limit_of_line(const fs::path& mounts, std::string_view line) {
  const std::size_t first = line.find(':');
  const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const fs::path group = line.substr(second + 1);
  Limit limit;
  if (controllers.empty()) {
    for (const char* mount : {"", "unified"})
      limit = smaller(limit, tightest(mounts / mount, group, limit_of_version2));
  } else if (names_cpu(controllers)) {
    for (const char* mount : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
      limit = smaller(limit, tightest(mounts / mount, group, limit_of_version1));
    }
  }
  return limit;
}

// In whole threads, to the nearest: half a thread's time is better used than left.
int read_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  // The root of a hierarchy holds for everybody, whether or not the process can be found in it.
  Limit limit = smaller(limit_of_version2(mounts), limit_of_version1(mounts / "cpu"));
  const std::string text = read_text(root / "proc/self/cgroup").value_or("");
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    limit = smaller(limit, limit_of_line(mounts, rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!limit) return 0;
  return static_cast<int>(std::lround(std::clamp(*limit, 1.0, static_cast<double>(kMostQuota))));
}

}  // namespace

// ---- CpuMask ----

CpuMask CpuMask::of_this_thread() noexcept {
  CpuMask mask;
  const int rc = ::sched_getaffinity(0, sizeof mask.words_, reinterpret_cast<cpu_set_t*>(mask.words_.data()));
  return rc == 0 ? mask : CpuMask();
}

bool CpuMask::bind_this_thread() const noexcept {
  return ::sched_setaffinity(0, sizeof words_, reinterpret_cast<const cpu_set_t*>(words_.data())) == 0;
}

void CpuMask::add(int cpu) noexcept {
  if (cpu >= 0 && cpu < kMost) words_[as_size(cpu / kWordBits)] |= 1UL << (cpu % kWordBits);
}

bool CpuMask::contains(int cpu) const noexcept {
  return cpu >= 0 && cpu < kMost && (words_[as_size(cpu / kWordBits)] >> (cpu % kWordBits) & 1) != 0;
}

int CpuMask::count() const noexcept {
  int count = 0;
  for (const unsigned long word : words_) count += std::popcount(word);
  return count;
}

// ---- CpuTopology ----

int CpuTopology::cores() const noexcept {
  int count = 0;
  for (std::size_t i = 0; i < cpus.size(); ++i) count += i == 0 || cpus[i].core != cpus[i - 1].core ? 1 : 0;
  return count;
}

bool CpuTopology::several_nodes() const noexcept { return !cpus.empty() && cpus.front().node != cpus.back().node; }

CpuMask CpuTopology::node_mask(int node) const noexcept {
  CpuMask mask;
  for (const LogicalCpu& cpu : cpus) {
    if (cpu.node == node) mask.add(cpu.id);
  }
  return mask;
}

int CpuTopology::most_threads() const noexcept {
  const int count = std::max(1, static_cast<int>(cpus.size()));
  return quota > 0 ? std::min(count, quota) : count;
}

int CpuTopology::default_threads() const noexcept { return std::max(1, std::min(cores(), most_threads())); }

std::vector<LogicalCpu> CpuTopology::place(int workers) const {
  // Each core's first while there are enough of those, else all: in both lists a core's processors lie side by side.
  std::vector<LogicalCpu> from;
  from.reserve(cpus.size());
  const bool cores_alone = workers <= cores();
  for (const LogicalCpu& cpu : cpus) {
    if (!cores_alone || from.empty() || from.back().core != cpu.core) from.push_back(cpu);
  }
  std::vector<LogicalCpu> places(as_size(std::max(0, workers)));
  for (std::size_t i = 0; !from.empty() && i < places.size(); ++i) places[i] = from[i * from.size() / places.size()];
  return places;
}

CpuTopology read_cpu_topology(const fs::path& root, CpuMask allowed) {
  if (allowed.count() == 0) {
    const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    for (int cpu = 0; cpu < count; ++cpu) allowed.add(cpu);
  }
  Cores cores(root / "sys/devices/system/cpu");
  CpuTopology topology{.quota = read_quota(root)};
  topology.cpus.reserve(as_size(allowed.count()));
  for (const int cpu : numbers(allowed)) {
    if (cores.online(cpu)) topology.cpus.push_back({.id = cpu, .core = cores.core_of(cpu)});
  }
  if (topology.cpus.empty()) {  // then they are not all offline: somebody is reading this
    for (const int cpu : numbers(allowed)) topology.cpus.push_back({.id = cpu, .core = cpu});
  }
  assign_nodes(read_nodes(root / "sys/devices/system/node"), topology.cpus);
  std::ranges::sort(topology.cpus, {}, [](const LogicalCpu& cpu) { return std::tuple(cpu.node, cpu.core, cpu.id); });
  return topology;
}

CpuTopology read_cpu_topology() { return read_cpu_topology("/", CpuMask::of_this_thread()); }

int usable_threads() { return read_cpu_topology().default_threads(); }

}  // namespace quarrel
