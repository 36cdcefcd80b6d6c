#include "cli/bench/comm/options.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words& arguments) {
  try {
    (void)parse_bench_comm_options(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(BenchCommOptions, WithoutOptionsAllReduceOfFloatsIsTimedInBothKindsOfMemory) {
  const auto options = parse_bench_comm_options({});
  EXPECT_EQ(options.num_ranks, 0);
  EXPECT_EQ(options.ops, std::vector{Collective::all_reduce});
  EXPECT_EQ(options.dtypes, std::vector{DType::float32});
  EXPECT_EQ(options.memory.size(), 2U);
  EXPECT_EQ(options.sizes.back(), std::size_t{25} << 20);
  EXPECT_TRUE(options.compare.empty());
}

TEST(BenchCommOptions, ListsKeepTheirOrder) {
  const auto options = parse_bench_comm_options(
      {"-n", "8", "--sizes", "8,1K,3m,2MiB,1g", "--ops=all_gather,all_reduce,all_gather",
       "--dtypes", "bfloat16,bool", "--memory", "ordinary", "--compare", "mpi,gloo", "--seconds",
       "50ms"});
  EXPECT_EQ(options.num_ranks, 8);
  EXPECT_EQ(options.sizes, (std::vector<std::size_t>{8, 1024, 3U << 20, 2U << 20, 1U << 30}));
  EXPECT_EQ(options.ops, (std::vector{Collective::all_gather, Collective::all_reduce}));
  EXPECT_EQ(options.dtypes, (std::vector{DType::bfloat16, DType::boolean}));
  EXPECT_EQ(options.memory, std::vector{MemoryKind::ordinary});
  EXPECT_EQ(options.compare, (std::vector{Peer::mpi, Peer::gloo}));
  EXPECT_EQ(options.time, std::chrono::milliseconds(50));
}

TEST(BenchCommOptions, TheWordAllNamesEveryOpAndDType) {
  const auto options = parse_bench_comm_options({"--ops", "all", "--dtypes", "all"});
  EXPECT_EQ(options.ops.size(), timed_collectives().size());
  EXPECT_EQ(options.dtypes.size(), std::size_t{kNumDTypes});
}

TEST(BenchCommOptions, AWrongWordIsNamedWithTheNearestOne) {
  EXPECT_NE(refusal({"--ops", "all_reduse"}).find("did you mean all_reduce?"), std::string::npos);
  EXPECT_NE(refusal({"--dtypes", "float23"}).find("did you mean float32?"), std::string::npos);
  EXPECT_NE(refusal({"--compare", "glo"}).find("did you mean gloo?"), std::string::npos);
  EXPECT_NE(refusal({"--memory", "regstered"}).find("did you mean registered?"), std::string::npos);
  EXPECT_NE(refusal({"--size", "1K"}).find("did you mean --sizes?"), std::string::npos);
  EXPECT_NE(refusal({"stray"}).find("\"stray\" is an unexpected argument"), std::string::npos);
}

TEST(BenchCommOptions, TheOldNameOfRegisteredMemoryNamesTheNewOne) {
  EXPECT_NE(refusal({"--memory", "library"}).find("--memory registered"), std::string::npos);
}

TEST(BenchCommOptions, InvalidSizesAndNumbersAreRefused) {
  for (const char* wrong : {"0", "-1", "1.5M", "1T", "K", "1K,", "99999999999G"}) {
    EXPECT_NE(refusal({"--sizes", wrong}), "") << wrong;
  }
  EXPECT_NE(refusal({"-n", "0"}), "");
  EXPECT_NE(refusal({"--iterations", "0"}), "");
  EXPECT_NE(refusal({"--iterations", "5", "--seconds", "1s"}).find("give one"), std::string::npos);
}

TEST(BenchCommOptions, HelpFitsAScreen) {
  EXPECT_TRUE(parse_bench_comm_options({"--help"}).help);
  const auto help = bench_comm_help();
  EXPECT_LE(std::ranges::count(help, '\n'), 24);
  for (std::size_t begin = 0; begin < help.size(); begin = help.find('\n', begin) + 1) {
    EXPECT_LE(help.find('\n', begin) - begin, 100U);
  }
}

}  // namespace
}  // namespace lockstep::cli
