// Which processors this process may use, which of them share a core or a NUMA node, and how much of their time its
// control groups allow. Read whenever a thread pool is made; nothing is kept, so any thread may ask. What the system
// says is a hint: a file that is missing or makes no sense is left out, and what is known without it stands.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <vector>

#include <climits>

namespace quarrel {

// A set of processors, as the system numbers them.
class CpuMask {
 public:
  static constexpr int kMost = 8192;  // more than any Linux can have

  // Where the calling thread may run; empty if the system does not say.
  static CpuMask of_this_thread() noexcept;
  // Lets the calling thread run on these alone; false if the system refuses.
  bool bind_this_thread() const noexcept;

  void add(int cpu) noexcept;  // a number out of range is left out
  bool contains(int cpu) const noexcept;
  int count() const noexcept;
  bool operator==(const CpuMask&) const = default;

 private:
  static constexpr int kWordBits = static_cast<int>(sizeof(unsigned long)) * CHAR_BIT;
  std::array<unsigned long, kMost / kWordBits> words_{};
};

struct LogicalCpu {
  int id = 0;
  int core = 0;  // the same for all that share one
  int node = 0;
  bool operator==(const LogicalCpu&) const = default;
};

struct CpuTopology {
  std::vector<LogicalCpu> cpus = {};  // at least one; by node, then core, then number
  int quota = 0;                      // how many threads' worth of time there is; 0: no limit

  int cores() const noexcept;
  bool several_nodes() const noexcept;
  CpuMask node_mask(int node) const noexcept;
  // How many threads can run at once, and how many are worth it: one a core, because a second would only share its
  // units and its cache.
  int most_threads() const noexcept;
  int default_threads() const noexcept;
  // More than so many only wait for each other: a number beyond it is a mistake.
  int thread_limit() const noexcept { return 16 * most_threads(); }
  // A processor for each of so many workers. Neighbours are of one node, nodes have workers by their size, and no core
  // has two before each has one; beyond the last processor several workers share one.
  std::vector<LogicalCpu> place(int workers) const;
};

// Reads `root`/sys and `root`/proc, which is how a test makes a machine up. Never fails: in the worst case all
// processors that are allowed are cores of one node.
CpuTopology read_cpu_topology(const std::filesystem::path& root, CpuMask allowed);
// Of this machine, for the calling thread.
CpuTopology read_cpu_topology();

// How many threads this process should use: cores within its affinity mask and its control groups' quotas, at least 1.
int usable_threads();

}  // namespace quarrel
