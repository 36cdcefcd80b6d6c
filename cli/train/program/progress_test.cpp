#include "cli/train/program/progress.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""s;

const Progress kProgress{.step = 7,
                         .steps = 300,
                         .loss = 2.43125,
                         .lr = 9.1e-4,
                         .units_per_second = 41234,
                         .data_wait = 0.001,
                         .exposed = 0.023,
                         .left = 52s};

TEST(Progress, HasAllPartsOnAWideTerminal) {
  EXPECT_EQ(progress_line(kProgress),
            "step   7/300  loss 2.4312  41.2k tok/s  0:52 left  lr 9.10e-04  data wait 0.1 %  "
            "exposed comm 2.3 %");
}

TEST(Progress, LeavesOutTheLastPartsOnANarrowTerminal) {
  for (int columns = 0; columns < 110; ++columns) {
    const auto line = progress_line(kProgress, columns);
    EXPECT_LE(static_cast<int>(line.size()), columns);
    EXPECT_TRUE(progress_line(kProgress).starts_with(line));
  }
  EXPECT_EQ(progress_line(kProgress, 30), "step   7/300  loss 2.4312");
}

TEST(Progress, NumbersKeepThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(1000), "1.00k");
  EXPECT_EQ(short_number(41234), "41.2k");
  EXPECT_EQ(short_number(412345), "412k");
  EXPECT_EQ(short_number(999'900), "1.00M");
  EXPECT_EQ(short_number(2.5e9), "2.50G");
}

TEST(Progress, TimesAreWrittenAsOnAClock) {
  EXPECT_EQ(clock_text(0s), "0:00");
  EXPECT_EQ(clock_text(52s), "0:52");
  EXPECT_EQ(clock_text(723s), "12:03");
  EXPECT_EQ(clock_text(11279s), "3:07:59");
}

}  // namespace
}  // namespace lockstep::cli
