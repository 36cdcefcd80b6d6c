#include "lockstep/machine/cpu_topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

class MadeUpMachine : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << '\n';
  }

  const std::string root_ =
      std::filesystem::temp_directory_path() / ("lockstep-sys-" + std::to_string(::getpid()));
};

std::vector<std::vector<int>> cores_of(const CpuTopology::Node& node) {
  std::vector<std::vector<int>> result;
  for (const auto& core : node.cores) result.push_back(core.processors);
  return result;
}

TEST_F(MadeUpMachine, ProcessorsAreGroupedByNodeAndByCore) {
  write("/devices/system/node/node0/cpulist", "0-1,4-5");
  write("/devices/system/node/node1/cpulist", "2-3,6-7");
  write("/devices/system/node/possible", "0-1");
  for (int i = 0; i < 8; ++i) {
    write("/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
          std::to_string(i % 4) + "," + std::to_string(i % 4 + 4));
  }
  const auto topology = read_cpu_topology(std::vector{0, 1, 2, 3, 4, 5, 7}, root_);
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(cores_of(topology.nodes[0]), (std::vector<std::vector<int>>{{0, 4}, {1, 5}}));
  EXPECT_EQ(cores_of(topology.nodes[1]), (std::vector<std::vector<int>>{{2}, {3, 7}}))
      << "processor 6 is not allowed";
  EXPECT_EQ(topology.num_cores(), 4);
}

TEST_F(MadeUpMachine, ANodeWithoutAnAllowedProcessorIsOmitted) {
  write("/devices/system/node/node0/cpulist", "0-1");
  write("/devices/system/node/node1/cpulist", "2-3");
  EXPECT_EQ(read_cpu_topology(std::vector{2, 3}, root_).nodes.size(), 1u);
}

TEST_F(MadeUpMachine, WithoutADescriptionEachProcessorIsACoreOfOneNode) {
  const auto topology = read_cpu_topology(std::vector{3, 5}, root_);
  ASSERT_EQ(topology.nodes.size(), 1u);
  EXPECT_EQ(cores_of(topology.nodes[0]), (std::vector<std::vector<int>>{{3}, {5}}));
  EXPECT_EQ(topology.quota, std::nullopt);
}

TEST_F(MadeUpMachine, TheQuotaOfTheContainerIsRead) {
  write("/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_EQ(read_cpu_topology(std::vector{0}, root_).quota, 2.5);
  write("/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(read_cpu_topology(std::vector{0}, root_).quota, std::nullopt);
}

TEST(CpuTopology, OfThisMachineHoldsTheAllowedProcessors) {
  const auto allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  std::size_t count = 0;
  for (const auto& node : read_cpu_topology(allowed).nodes) {
    for (const auto& core : node.cores) count += core.processors.size();
  }
  EXPECT_EQ(count, allowed.size());
}

TEST(CpuTopology, CpuListsOfTheKernelAreParsed) {
  EXPECT_EQ(parse_cpu_list("0-2,8"), (std::vector{0, 1, 2, 8}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  for (const char* text : {"x", "3-1", "1;2", "-1"}) EXPECT_TRUE(parse_cpu_list(text).empty());
}

}  // namespace
}  // namespace lockstep
