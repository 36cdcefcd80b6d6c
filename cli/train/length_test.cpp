#include "cli/train/length.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Unit = TrainLength::Unit;

TEST(TrainLength, IsReadAsItIsTyped) {
  EXPECT_EQ(parse_train_length("--warmup", "300st"), (TrainLength{300, Unit::steps}));
  EXPECT_EQ(parse_train_length("--warmup", "300"), (TrainLength{300, Unit::steps}));
  EXPECT_EQ(parse_train_length("--warmup", "0.5ep"), (TrainLength{0.5, Unit::epochs}));
  EXPECT_EQ(parse_train_length("--warmup", "50Mtok"), (TrainLength{50e6, Unit::tokens}));
  EXPECT_EQ(parse_train_length("--warmup", "2Btok"), (TrainLength{2e9, Unit::tokens}));
  EXPECT_EQ(parse_train_length("--warmup", "5kst"), (TrainLength{5000, Unit::steps}));
  EXPECT_EQ(parse_train_length("--warmup", "10min"), (TrainLength{600, Unit::seconds}));
}

TEST(TrainLength, WhatIsWrittenIsReadBack) {
  for (const auto* text : {"300st", "2ep", "50Mtok", "1.5Btok", "90s", "0.5ep"}) {
    EXPECT_EQ(to_string(parse_train_length("--warmup", text)), text);
  }
}

TEST(TrainLength, AnInvalidTextIsNamedWithAValidExample) {
  for (const auto* text : {"", "st", "-3st", "0st", "3 st", "3weeks", "1e300st", "nan"}) {
    try {
      (void)parse_train_length("--warmup", text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("300st"), std::string::npos);
    }
  }
}

TEST(TrainLength, AnOptionThatNamesItsUnitTakesANumberWithoutOne) {
  EXPECT_EQ(parse_length_in(Unit::steps, "300"), (TrainLength{300, Unit::steps}));
  EXPECT_EQ(parse_length_in(Unit::steps, "10k"), (TrainLength{10'000, Unit::steps}));
  EXPECT_EQ(parse_length_in(Unit::epochs, "0.5"), (TrainLength{0.5, Unit::epochs}));
  EXPECT_EQ(parse_length_in(Unit::tokens, "50M"), (TrainLength{50e6, Unit::tokens}));
  EXPECT_EQ(parse_length_in(Unit::tokens, "2B"), (TrainLength{2e9, Unit::tokens}));
  EXPECT_EQ(parse_length_in(Unit::seconds, "10min"), (TrainLength{600, Unit::seconds}));
  const auto refusal = [](Unit unit, std::string_view text) -> std::string {
    try {
      (void)parse_length_in(unit, text);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(Unit::steps, "300st"),
            "--steps is \"300st\", expected a number of steps such as 300 or 10k");
  EXPECT_EQ(refusal(Unit::epochs, "0"),
            "--epochs is \"0\", expected a number of epochs such as 2 or 0.5");
  EXPECT_EQ(refusal(Unit::tokens, "50Mtok"),
            "--tokens is \"50Mtok\", expected a number of tokens such as 50M or 1B");
  EXPECT_EQ(refusal(Unit::seconds, "300"),
            "--time is \"300\", expected a time such as 90s, 10min or 6h");
}

TEST(TrainLength, TheValueOfAnOptionIsReadBack) {
  for (const TrainLength length : {TrainLength{300, Unit::steps}, TrainLength{10'000, Unit::steps},
                                   TrainLength{0.5, Unit::epochs}, TrainLength{50e6, Unit::tokens},
                                   TrainLength{90, Unit::seconds}}) {
    EXPECT_EQ(parse_length_in(length.unit, value_text(length)), length);
  }
}

TEST(TrainLength, IsWrittenInWords) {
  EXPECT_EQ(in_words({300, Unit::steps}), "300 steps");
  EXPECT_EQ(in_words({1, Unit::epochs}), "1 epoch");
  EXPECT_EQ(in_words({50e6, Unit::tokens}), "50M tokens");
  EXPECT_EQ(in_words({90, Unit::seconds}), "90 s");
}

TEST(TrainLength, BecomesStepsRoundedUp) {
  const StepSize size{.steps_per_epoch = 10, .tokens = 1024};
  EXPECT_EQ(try_steps("--steps", {7, Unit::steps}, size), 7);
  EXPECT_EQ(try_steps("--epochs", {2, Unit::epochs}, size), 20);
  EXPECT_EQ(try_steps("--epochs", {0.25, Unit::epochs}, size), 3);
  EXPECT_EQ(try_steps("--tokens", {1025, Unit::tokens}, size), 2);
  EXPECT_EQ(try_steps("--time", {60, Unit::seconds}, size), std::nullopt);
  EXPECT_THROW((void)try_steps("--tokens", {1, Unit::tokens}, {.steps_per_epoch = 10}), UsageError);
}

}  // namespace
}  // namespace lockstep::cli
