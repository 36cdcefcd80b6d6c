#include "cli/train/length.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Unit = TrainLength::Unit;

TEST(TrainLength, IsReadAsItIsTyped) {
  EXPECT_EQ(parse_train_length("--for", "300st"), (TrainLength{300, Unit::steps}));
  EXPECT_EQ(parse_train_length("--for", "300"), (TrainLength{300, Unit::steps}));
  EXPECT_EQ(parse_train_length("--for", "0.5ep"), (TrainLength{0.5, Unit::epochs}));
  EXPECT_EQ(parse_train_length("--for", "50Mtok"), (TrainLength{50e6, Unit::tokens}));
  EXPECT_EQ(parse_train_length("--for", "2Btok"), (TrainLength{2e9, Unit::tokens}));
  EXPECT_EQ(parse_train_length("--for", "5kst"), (TrainLength{5000, Unit::steps}));
  EXPECT_EQ(parse_train_length("--for", "10min"), (TrainLength{600, Unit::seconds}));
}

TEST(TrainLength, WhatIsWrittenIsReadBack) {
  for (const auto* text : {"300st", "2ep", "50Mtok", "1.5Btok", "90s", "0.5ep"}) {
    EXPECT_EQ(to_string(parse_train_length("--for", text)), text);
  }
}

TEST(TrainLength, ASlipIsNamedWithWhatWouldDo) {
  for (const auto* text : {"", "st", "-3st", "0st", "3 st", "3weeks", "1e300st", "nan"}) {
    try {
      (void)parse_train_length("--for", text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("300st"), std::string::npos);
    }
  }
}

TEST(TrainLength, BecomesStepsRoundedUp) {
  const StepSize size{.steps_per_epoch = 10, .tokens = 1024};
  EXPECT_EQ(try_steps("--for", {7, Unit::steps}, size), 7);
  EXPECT_EQ(try_steps("--for", {2, Unit::epochs}, size), 20);
  EXPECT_EQ(try_steps("--for", {0.25, Unit::epochs}, size), 3);
  EXPECT_EQ(try_steps("--for", {1025, Unit::tokens}, size), 2);
  EXPECT_EQ(try_steps("--for", {60, Unit::seconds}, size), std::nullopt);
  EXPECT_THROW((void)try_steps("--for", {1, Unit::tokens}, {.steps_per_epoch = 10}), UsageError);
}

}  // namespace
}  // namespace lockstep::cli
