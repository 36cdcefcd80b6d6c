#include "cli/report/live_report.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(LiveReport, PagesTakeLessThanHalfAPercentOfTheTime) {
  for (const int milliseconds : {1, 10, 20, 50, 1000, 30'000}) {
    const std::chrono::milliseconds cost(milliseconds);
    const std::chrono::duration<double> interval = next_page_after(cost);
    EXPECT_GE(interval.count(), 5);
    EXPECT_LE(std::chrono::duration<double>(cost) / interval, 0.005) << milliseconds;
  }
}

}  // namespace
}  // namespace lockstep::cli
