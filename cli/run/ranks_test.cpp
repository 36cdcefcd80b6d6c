#include "cli/run/ranks.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// Three cores on two NUMA nodes.
Machine machine_with(int num_gpus) {
  return machine_from_json(
      R"({"format":"lockstep-machine","version":1,"architecture":"x86_64",
          "nodes":[[[0,3],[1,4]],[[2,5]]],"caches":[],"hides_sve":false,"host":"a",
          "num_gpus":)" +
          std::to_string(num_gpus) + "}",
      "ranks_test");
}

int ranks(int num_gpus, const std::vector<std::string>& words) {
  auto arguments = words;
  arguments.push_back("program");
  return num_ranks_on(machine_with(num_gpus), parse_run_options(arguments));
}

TEST(RanksOn, WithoutANumberThereIsOnePerGpuAndWithoutGpusOnePerCore) {
  EXPECT_EQ(ranks(0, {}), 3);
  EXPECT_EQ(ranks(8, {}), 8);
  EXPECT_EQ(ranks(8, {"-n", "cpu"}), 3);
  EXPECT_EQ(ranks(8, {"-n", "gpu"}), 8);
  EXPECT_THROW((void)ranks(0, {"-n", "gpu"}), UsageError);
}

// The program may compute on the CPU: a rank that asks for a GPU is refused by device_of(), not
// here.
TEST(RanksOn, ANumberIsTakenAsItIs) {
  EXPECT_EQ(ranks(0, {"-n", "16"}), 16);
  EXPECT_EQ(ranks(2, {"-n", "2"}), 2);
  EXPECT_EQ(ranks(2, {"-n", "3"}), 3);
}

}  // namespace
}  // namespace lockstep::cli
