#include "cli/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::cli {
namespace {

constexpr std::array<std::string_view, 4> kVerbs{"run", "train", "generate", "verify"};

TEST(Nearest, FindsAWordWithOneMistypedLetter) {
  EXPECT_EQ(try_nearest("trian", kVerbs), "train");   // swapped
  EXPECT_EQ(try_nearest("tran", kVerbs), "train");    // missing
  EXPECT_EQ(try_nearest("trainn", kVerbs), "train");  // doubled
  EXPECT_EQ(try_nearest("rum", kVerbs), "run");       // wrong key
}

TEST(Nearest, AllowsMoreEditsInLongerWords) {
  EXPECT_EQ(try_nearest("genrat", kVerbs), "generate");
}

TEST(Nearest, OffersNothingForAnotherWord) {
  EXPECT_EQ(try_nearest("deploy", kVerbs), std::nullopt);
  EXPECT_EQ(try_nearest("", kVerbs), std::nullopt);
}

TEST(Nearest, KnowsTheNamesThatOtherProgramsGiveAnOption) {
  constexpr std::array<std::string_view, 3> kOptions{"--lr", "--batch", "--seed"};
  EXPECT_EQ(try_nearest("--learning-rate", kOptions), "--lr");
  EXPECT_EQ(try_nearest("--batch-size", kOptions), "--batch");
  EXPECT_EQ(try_nearest("--max-steps", kOptions), std::nullopt) << "there is no such option here";
}

TEST(Nearest, PrefersTheExactWord) { EXPECT_EQ(try_nearest("run", kVerbs), "run"); }

}  // namespace
}  // namespace lockstep::cli
