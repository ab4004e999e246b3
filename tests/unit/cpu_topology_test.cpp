// Machines made of files: what is read from them, and what is made of files that are missing, wrong or hostile.
#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

class Machine {
 public:
  Machine& file(const std::string& path, std::string_view text) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary) << text;
    return *this;
  }
  Machine& cpu(int id, const std::string& name, std::string_view text) {
    return file("sys/devices/system/cpu/cpu" + std::to_string(id) + "/" + name, text);
  }
  Machine& node(const std::string& name, std::string_view text) {
    return file("sys/devices/system/node/" + name + "/cpulist", text);
  }
  // Four cores of two threads: 0 and 4, 1 and 5, and so on.
  Machine& smt() {
    for (int id = 0; id < 8; ++id) {
      const int core = id % 4;
      cpu(id, "topology/thread_siblings_list", std::to_string(core) + "," + std::to_string(core + 4) + "\n");
    }
    return *this;
  }
  CpuTopology read(const std::vector<int>& allowed = {0, 1, 2, 3, 4, 5, 6, 7}) const {
    CpuMask mask;
    for (const int id : allowed) mask.add(id);
    return read_cpu_topology(folder_.path(), mask);
  }

 private:
  TempDir folder_;
};

std::vector<int> ids(const std::vector<LogicalCpu>& cpus) {
  std::vector<int> result;
  for (const LogicalCpu& cpu : cpus) result.push_back(cpu.id);
  return result;
}

using Ids = std::vector<int>;

TEST(CpuMask, HoldsWhatIsInRange) {
  CpuMask mask;
  for (const int id : {-1, 0, 63, 64, CpuMask::kMost - 1, CpuMask::kMost}) mask.add(id);
  EXPECT_EQ(mask.count(), 4);
  for (const int id : {0, 63, 64, CpuMask::kMost - 1}) EXPECT_TRUE(mask.contains(id)) << id;
  for (const int id : {-1, 1, 62, 65, CpuMask::kMost}) EXPECT_FALSE(mask.contains(id)) << id;
}

TEST(CpuTopology, TwoThreadsACore) {
  const CpuTopology topology = Machine().smt().read();
  EXPECT_EQ(topology.cores(), 4);
  EXPECT_EQ(topology.default_threads(), 4);
  EXPECT_EQ(topology.most_threads(), 8);
  EXPECT_FALSE(topology.several_nodes());
  EXPECT_EQ(ids(topology.cpus), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(ids(topology.place(1)), (Ids{0}));
  EXPECT_EQ(ids(topology.place(2)), (Ids{0, 2}));
  EXPECT_EQ(ids(topology.place(4)), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids(topology.place(6)), (Ids{0, 4, 1, 2, 6, 3}));  // every core has one before two have another
  EXPECT_EQ(ids(topology.place(8)), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(topology.place(100).size(), 100u);
  EXPECT_EQ(topology.place(0).size(), 0u);
}

TEST(CpuTopology, TheAffinityMaskDecidesWhatCounts) {
  Machine machine;
  machine.smt();
  EXPECT_EQ(machine.read({1, 5, 2}).cores(), 2);
  EXPECT_EQ(ids(machine.read({1, 5, 2}).cpus), (Ids{1, 5, 2}));
  EXPECT_EQ(machine.read({5, 6}).cores(), 2);  // second threads alone are cores as well
  EXPECT_EQ(machine.read({7}).default_threads(), 1);
}

TEST(CpuTopology, OneThreadACore) {
  Machine machine;
  for (int id = 0; id < 4; ++id) machine.cpu(id, "topology/thread_siblings_list", std::to_string(id) + "\n");
  EXPECT_EQ(machine.read({0, 1, 2, 3}).cores(), 4);
}

TEST(CpuTopology, PackagesCountTheirCoresFromZero) {
  Machine machine;
  for (int id = 0; id < 8; ++id) {
    machine.cpu(id, "topology/physical_package_id", std::to_string(id % 4 / 2) + "\n");
    machine.cpu(id, "topology/core_id", std::to_string(id % 2) + "\n");
  }
  const CpuTopology topology = machine.read();
  EXPECT_EQ(topology.cores(), 4);
  EXPECT_EQ(ids(topology.cpus), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
}

TEST(CpuTopology, WorkersAreOrderedByNode) {
  const CpuTopology topology = Machine().smt().node("node0", "0-1,4-5\n").node("node1", "2-3,6-7\n").read();
  EXPECT_TRUE(topology.several_nodes());
  EXPECT_EQ(ids(topology.place(2)), (Ids{0, 2}));
  EXPECT_EQ(ids(topology.place(4)), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids(topology.place(8)), (Ids{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(topology.node_mask(1).count(), 4);
  EXPECT_TRUE(topology.node_mask(1).contains(6));
  EXPECT_EQ(topology.node_mask(2).count(), 0);
  EXPECT_FALSE(Machine().smt().node("node0", "0-1,4-5\n").node("node1", "2-3,6-7\n").read({2, 3}).several_nodes());
}

TEST(CpuTopology, NodesMayTakeTurnsInTheNumbers) {
  Machine machine;
  machine.node("node0", "0,2,4,6\n").node("node3", "1,3,5,7\n").node("node7", "\n");  // the last has memory alone
  const CpuTopology topology = machine.read();
  EXPECT_EQ(ids(topology.cpus), (Ids{0, 2, 4, 6, 1, 3, 5, 7}));
  for (const int workers : {1, 2, 3, 5, 8, 19}) {
    int node = 0;
    int of_first = 0;
    for (const LogicalCpu& place : topology.place(workers)) {
      EXPECT_GE(place.node, node);
      node = place.node;
      of_first += place.node == 0 ? 1 : 0;
    }
    EXPECT_EQ(of_first, (workers + 1) / 2);
  }
}

TEST(CpuTopology, AnOfflineProcessorIsNone) {
  Machine machine;
  machine.smt().cpu(3, "online", "0\n").cpu(7, "online", "0\n").cpu(1, "online", "1\n");
  EXPECT_EQ(ids(machine.read().cpus), (Ids{0, 4, 1, 5, 2, 6}));
  for (int id = 0; id < 8; ++id) machine.cpu(id, "online", "0\n");
  EXPECT_EQ(machine.read().cpus.size(), 8u);  // which cannot be
}

TEST(CpuTopology, WithoutFilesEveryProcessorIsACore) {
  const CpuTopology topology = Machine().read({0, 1, 4});
  EXPECT_EQ(ids(topology.cpus), (Ids{0, 1, 4}));
  EXPECT_EQ(topology.default_threads(), 3);
  EXPECT_EQ(topology.quota, 0);
  EXPECT_GE(Machine().read({}).default_threads(), 1);  // not even a mask
}

TEST(CpuTopology, FilesThatMakeNoSenseAreLeftOut) {
  const std::string huge(1 << 20, '1');
  for (const std::string& text : std::initializer_list<std::string>{
           "", "\n", "x", "0-", "-0", "5-2", "0,,1", "0-99999999", "8192", "99999999999999999999", "0 1", "0x0",
           "1,2,3", "0\n1", std::string("0\0", 2), huge}) {
    SCOPED_TRACE(text.substr(0, 30));
    // As the list of who shares a core with 0, beside numbers that say something.
    Machine machine;
    machine.cpu(0, "topology/thread_siblings_list", text);
    EXPECT_EQ(machine.read({0, 1}).cores(), 2);
    for (int id = 0; id < 2; ++id) {
      machine.cpu(id, "topology/physical_package_id", "0").cpu(id, "topology/core_id", "0");
    }
    EXPECT_EQ(machine.read({0, 1}).cores(), 1);
    // As a node's list: what is left of the nodes does not hold all processors, so there is one.
    Machine nodes;
    nodes.node("node0", "0").node("node1", text);
    EXPECT_FALSE(nodes.read({0, 4}).several_nodes());
  }
  for (const char* text : {"", "x", "-1", "1.5", "99999999999999999999"}) {
    Machine machine;
    for (int id = 0; id < 2; ++id)
      machine.cpu(id, "topology/physical_package_id", "0").cpu(id, "topology/core_id", text);
    EXPECT_EQ(machine.read({0, 1}).cores(), 2) << text;
  }
  Machine names;
  for (const char* name : {"node", "nodes", "node-1", "node1x", "node99999999999999999999"}) names.node(name, "0-7");
  names.file("sys/devices/system/node/node5", "a file");
  EXPECT_FALSE(names.read().several_nodes());
}

TEST(CpuQuota, TheTightestOfTheGroupAndThoseAboveIt) {
  Machine machine;
  machine.file("proc/self/cgroup", "0::/a/b/c\n");
  EXPECT_EQ(machine.read().quota, 0);
  machine.file("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n").file("sys/fs/cgroup/a/cpu.max", "500000 100000\n");
  EXPECT_EQ(machine.read().quota, 5);
  EXPECT_EQ(machine.read().default_threads(), 5);
  machine.file("sys/fs/cgroup/a/b/cpu.max", "150000 50000\n");
  EXPECT_EQ(machine.read().quota, 3);
  machine.file("sys/fs/cgroup/a/b/c/cpu.max", "140000 100000\n");
  EXPECT_EQ(machine.read().quota, 1);
  machine.file("sys/fs/cgroup/a/b/c/cpu.max", "160000 100000\n");
  EXPECT_EQ(machine.read().quota, 2);  // to the nearest
  machine.file("sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQ(machine.read().quota, 1);  // but one at least
  EXPECT_EQ(machine.read().most_threads(), 1);
  Machine other;
  other.file("proc/self/cgroup", "0::/a\n").file("sys/fs/cgroup/b/cpu.max", "100000 100000\n");
  EXPECT_EQ(other.read().quota, 0);
}

TEST(CpuQuota, FirstVersionAndBothTogether) {
  for (const char* mount : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
    Machine machine;
    machine.file("proc/self/cgroup", "12:memory:/m\n4:cpu,cpuacct:/docker/0123\n1:name=systemd:/x\n");
    const std::string folder = std::string("sys/fs/cgroup/") + mount;
    machine.file(folder + "/docker/0123/cpu.cfs_period_us", "100000\n");
    machine.file(folder + "/docker/0123/cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(machine.read().quota, 0) << mount;
    machine.file(folder + "/docker/0123/cpu.cfs_quota_us", "400000\n");
    EXPECT_EQ(machine.read().quota, 4) << mount;
    machine.file(folder + "/docker/cpu.cfs_period_us", "100000\n")
        .file(folder + "/docker/cpu.cfs_quota_us", "300000\n");
    EXPECT_EQ(machine.read().quota, 3) << mount;
    // Version 2 may be mounted beside it.
    machine.file("proc/self/cgroup", "4:cpu:/docker/0123\n0::/u/v\n");
    machine.file("sys/fs/cgroup/unified/u/cpu.max", "200000 100000\n");
    EXPECT_EQ(machine.read().quota, 2) << mount;
  }
  // A container that is told its path on the host, of which it sees the end alone.
  Machine container;
  container.file("proc/self/cgroup", "4:cpu:/docker/0123\n").file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  container.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(container.read().quota, 2);
}

TEST(CpuQuota, WhatMakesNoSenseLimitsNothing) {
  for (const char* text :
       {"", "max", "100000", "100000 ", "100000 0", "100000 -1", "0 100000", "-5 100000", "nan 100000", "1e5 100000",
        "inf 1", "99999999999999999999 1", "100000  100000", "100000 100000 1"}) {
    EXPECT_EQ(Machine().file("sys/fs/cgroup/cpu.max", text).read().quota, 0) << text;
  }
  for (const char* text : {"", ":", "::", "0::", "0::/..", "0::/../x", "0:/x", "\n\n\n", "0::/x/../../y"}) {
    Machine machine;
    machine.file("proc/self/cgroup", text).file("sys/fs/cpu.max", "100000 100000").file("y/cpu.max", "100000 100000");
    machine.file("sys/fs/x/cpu.max", "100000 100000").file("sys/fs/y/cpu.max", "100000 100000");
    EXPECT_EQ(machine.read().quota, 0) << text;
  }
  EXPECT_EQ(Machine().file("proc/self/cgroup", std::string(1 << 20, '/')).read().quota, 0);
  // More than any machine has is no reason for more threads.
  const CpuTopology many = Machine().file("sys/fs/cgroup/cpu.max", "9223372036854775807 1\n").read();
  EXPECT_GT(many.quota, 8);
  EXPECT_EQ(many.default_threads(), 8);
}

TEST(CpuTopology, OfThisMachine) {
  const CpuMask allowed = CpuMask::of_this_thread();
  const CpuTopology topology = read_cpu_topology();
  ASSERT_FALSE(topology.cpus.empty());
  EXPECT_GE(usable_threads(), 1);
  EXPECT_LE(usable_threads(), static_cast<int>(topology.cpus.size()));
  if (allowed.count() == 0) GTEST_SKIP() << "the system does not tell the affinity mask";
  EXPECT_LE(static_cast<int>(topology.cpus.size()), allowed.count());
  for (const LogicalCpu& cpu : topology.cpus) EXPECT_TRUE(allowed.contains(cpu.id));
}

}  // namespace
}  // namespace quarrel::test
