#include "lockstep/launch/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    auto pattern = ::testing::TempDir() + "/lockstep_job_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~JobTest() override { fs::remove_all(folder_); }

  // A job whose ranks each note their start and then run `script`.
  JobOptions shell(const std::string& script) const {
    return {.command = {"/bin/sh", "-c", "echo started >> " + starts() + "; " + script},
            .announce = false,
            .grace = std::chrono::milliseconds(500),
            .run_dir = folder_ / "run"};
  }

  std::string starts() const { return folder_ / "starts"; }
  std::ptrdiff_t num_starts() const {
    std::ifstream file(starts());
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }

  fs::path folder_;
};

TEST_F(JobTest, EndsWith0WhenAllRanksDo) {
  auto options = shell("exit 0");
  options.num_ranks = 3;
  EXPECT_EQ(run_job(options, Environment::of_process()), 0);
  EXPECT_EQ(num_starts(), 3);
}

TEST_F(JobTest, WithoutRestartsEndsWithTheFirstFailureAndItsExitCode) {
  EXPECT_EQ(run_job(shell("exit 7"), Environment::of_process()), 7);
  EXPECT_EQ(num_starts(), 1);
}

TEST_F(JobTest, IsRestartedUntilItSucceeds) {
  auto options = shell("[ $(wc -l < " + starts() + ") -ge 2 ]");
  options.max_restarts = 5;
  EXPECT_EQ(run_job(options, Environment::of_process()), 0);
  EXPECT_EQ(num_starts(), 2);
}

TEST_F(JobTest, IsRestartedNoMoreOftenThanAllowed) {
  auto options = shell("exit 7");
  options.max_restarts = 2;
  EXPECT_EQ(run_job(options, Environment::of_process()), 7);
  EXPECT_EQ(num_starts(), 3);
}

TEST_F(JobTest, IsNotRestartedAfterTheFinalCode) {
  auto options = shell("exit 9");
  options.max_restarts = 2;
  options.final_code = 9;
  EXPECT_EQ(run_job(options, Environment::of_process()), 9);
  EXPECT_EQ(num_starts(), 1);
}

}  // namespace
}  // namespace lockstep
