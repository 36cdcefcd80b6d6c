#include "lockstep/trace/process_usage.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class OtherRoot : public ::testing::Test {
 protected:
  ~OtherRoot() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_ = ::testing::TempDir() + "usage_" + std::to_string(::getpid());
};

TEST(ProcessUsage, MemoryAndProcessorTimeAreThoseOfThisProcess) {
  const auto before = read_process_usage();
  const std::vector<char> block(64 << 20, 'x');
  volatile std::uint64_t sum = 0;
  const auto end = std::chrono::steady_clock::now() + 60ms;
  while (std::chrono::steady_clock::now() < end) {
    for (std::size_t i = 0; i < block.size(); i += 4096)
      sum = sum + static_cast<unsigned char>(block[i]);
  }
  const auto after = read_process_usage();
  EXPECT_GT(after.rss_bytes - before.rss_bytes, 60e6);
  EXPECT_GE(after.peak_rss_bytes, after.rss_bytes * 0.99);
  EXPECT_GT(after.cpu_seconds - before.cpu_seconds, 0.005);  // the machine may be busy
  EXPECT_GE(after.processor_seconds, before.processor_seconds);
}

TEST_F(OtherRoot, StealIsThatOfTheAllowedProcessors) {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  int allowed = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(allowed), &set)) ++allowed;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  put("/proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu" + std::to_string(allowed) +
                        " 10 20 30 40 0 0 0 100 0 0\ncpu4095 1 1 1 1 1 1 1 1 0 0\nintr 5\n");
  const auto usage = read_process_usage(root_);
  EXPECT_DOUBLE_EQ(usage.steal_seconds * ticks, 100);
  EXPECT_DOUBLE_EQ(usage.processor_seconds * ticks, 200);
}

TEST_F(OtherRoot, ThrottlingIsFoundInBothKindsOfCgroupsAndAboveThem) {
  put("/proc/self/cgroup", "0::/job/rank\n");
  put("/sys/fs/cgroup/job/rank/cpu.stat", "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n");
  put("/sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n");
  EXPECT_DOUBLE_EQ(read_process_usage(root_).throttled_seconds, 2.5);
  put("/proc/self/cgroup", "3:cpuset:/\n1:cpu:/docker/abc\n0::/\n");
  put("/sys/fs/cgroup/cpu/cpu.stat", "nr_periods 9\nnr_throttled 1\nthrottled_time 1500000000\n");
  EXPECT_DOUBLE_EQ(read_process_usage(root_).throttled_seconds, 1.5)
      << "in a container the cgroup is the root";
}

TEST_F(OtherRoot, AMissingFigureIsZero) {
  const auto usage = read_process_usage(root_);
  EXPECT_EQ(usage.throttled_seconds, 0);
  EXPECT_EQ(usage.run_queue_seconds, 0);
  EXPECT_GT(usage.peak_rss_bytes, 0);
}

}  // namespace
}  // namespace lockstep
