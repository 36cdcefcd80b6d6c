#include "lockstep/train/seeds.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/cublas_setting_internal.h"

namespace lockstep {
namespace {

at::Tensor draws() {
  return torch::cat({torch::rand({50}), torch::randn({3}), torch::randn({50}),
                     torch::dropout(torch::ones({50}), 0.5, true)});
}

TEST(Seeds, DrawEqualNumbersForEqualStepsRegardlessOfEarlierDraws) {
  const Seeds seeds(7, {.leaf = 3});
  seeds.begin_step(12);
  const auto first = draws();
  (void)torch::randn({17});  // leaves one cached normal number
  seeds.begin_step(12);
  EXPECT_TRUE(draws().equal(first));
}

TEST(Seeds, DrawDifferentNumbersForDifferentStepsLeavesAndSeeds) {
  std::set<double> seen;
  std::size_t count = 0;
  for (const std::uint64_t seed : {7, 8}) {
    for (const std::int64_t leaf : {0, 1, 2}) {
      for (std::int64_t step = 0; step < 50; ++step) {
        Seeds(seed, {.leaf = leaf}).begin_step(step);
        seen.insert(torch::rand({1}, torch::kDouble).item<double>());
        ++count;
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Seeds, GiveRandomNumbersFromTheFirstOn) {
  // The first number of many streams, not many numbers of one: a badly filled state shows here.
  double sum = 0;
  double squares = 0;
  constexpr int kStreams = 4000;
  const Seeds seeds(1);
  for (int step = 0; step < kStreams; ++step) {
    seeds.begin_step(step);
    const auto value = torch::rand({1}, torch::kDouble).item<double>();
    sum += value;
    squares += value * value;
  }
  // Within five standard errors of 1/2 and 1/3.
  EXPECT_NEAR(sum / kStreams, 0.5, 5 * 0.2887 / std::sqrt(kStreams));
  EXPECT_NEAR(squares / kStreams, 1.0 / 3, 5 * 0.2981 / std::sqrt(kStreams));
}

TEST(Seeds, ShareNumbersThatAllRanksMustDraw) {
  const Seeds one(7, {.leaf = 0});
  const Seeds other(7, {.leaf = 5});
  one.begin_shared("init");
  const auto first = draws();
  other.begin_shared("init");
  EXPECT_TRUE(draws().equal(first));
  other.begin_shared("dropped layers");
  EXPECT_FALSE(draws().equal(first));
  other.begin_shared("init", 1);
  EXPECT_FALSE(draws().equal(first));

  const auto mine = torch::rand({20}, one.shared_generator("mixing", 4));
  one.begin_step(9);
  EXPECT_TRUE(torch::rand({20}, other.shared_generator("mixing", 4)).equal(mine));
  EXPECT_EQ(one.shared_stream("mixing", 4)(), other.shared_stream("mixing", 4)());
  EXPECT_NE(one.shared_stream("mixing", 4)(), other.shared_stream("mixing", 5)());
}

TEST(Seeds, RefuseToResumeWithAnotherSeed) {
  Seeds seeds(18446744073709551615U);
  EXPECT_NO_THROW(seeds.load_state_json(seeds.state_json()));
  EXPECT_THROW(seeds.load_state_json(Seeds(7).state_json()), UsageError);
  EXPECT_THROW(seeds.load_state_json("[]"), UsageError);
  EXPECT_THROW(seeds.begin_step(-1), UsageError);
  EXPECT_THROW(Seeds(1, {.leaf = -1}), UsageError);
}

TEST(Deterministic, SetsCublasWhileItIsNotTooLate) {
  EXPECT_TRUE(must_set_cublas(std::nullopt, false));
  for (const bool in_use : {false, true}) {
    EXPECT_FALSE(must_set_cublas(":4096:8", in_use));
    EXPECT_FALSE(must_set_cublas(":16:8", in_use));
  }
}

TEST(Deterministic, RefusesCublasThatIsNotDeterministicWithTheFix) {
  const auto refusal = [](const std::optional<std::string>& value, bool in_use) -> std::string {
    try {
      (void)must_set_cublas(value, in_use);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(std::nullopt, true).find("CUBLAS_WORKSPACE_CONFIG=:4096:8"), std::string::npos);
  EXPECT_NE(refusal(std::nullopt, true).find("before the first CUDA tensor"), std::string::npos);
  EXPECT_NE(refusal(":0:0", false).find("\":0:0\""), std::string::npos);
}

TEST(Deterministic, HoldsForItsScope) {
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  {
    const Deterministic mode;
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    // Has no deterministic algorithm on any device.
    auto x = torch::zeros({4});
    EXPECT_THROW(x.put_(torch::tensor({0, 0}), torch::tensor({1.F, 2.F}), /*accumulate=*/false),
                 c10::Error);
  }
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace lockstep
