#include "lockstep/report/axis_ticks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(AxisTicks, AreRoundValuesInsideTheRangeForEveryMagnitude) {
  for (int power = -12; power <= 12; ++power) {
    const double high = 7.3 * std::pow(10, power);
    const auto ticks = linear_ticks(0.1 * high, high, 5, Unit::plain);
    EXPECT_GE(ticks.at.size(), 3U) << high;
    EXPECT_LE(ticks.at.size(), 8U) << high;
    for (const double at : ticks.at) {
      EXPECT_GE(at, 0.0999 * high);
      EXPECT_LE(at, 1.0001 * high);
      EXPECT_NEAR(at / ticks.step, std::round(at / ticks.step), 1e-6);
    }
  }
}

TEST(AxisTicks, OfStepsAreIntegers) {
  EXPECT_EQ(linear_ticks(0, 7, 3, Unit::count).at, (std::vector<double>{0, 2, 4, 6}));
  EXPECT_EQ(linear_ticks(1, 3, 6, Unit::count).at, (std::vector<double>{1, 2, 3}));
}

TEST(AxisTicks, OfTimesAreThoseOfAClock) {
  EXPECT_EQ(linear_ticks(0, 200, 3, Unit::duration).at, (std::vector<double>{0, 60, 120, 180}));
  EXPECT_EQ(linear_ticks(0, 9000, 5, Unit::duration).step, 1800);
}

TEST(AxisTicks, OfALogarithmicAxisAreDecadesOrPowersOfTwo) {
  EXPECT_EQ(logarithmic_ticks(5, 2000, Unit::plain).at, (std::vector<double>{10, 100, 1000}));
  EXPECT_EQ(logarithmic_ticks(1.5, 6, Unit::plain).at, (std::vector<double>{2, 5}));
  EXPECT_EQ(logarithmic_ticks(1024, 8192, Unit::bytes).at,
            (std::vector<double>{1024, 2048, 4096, 8192}));
}

TEST(AxisTicks, AnEmptyRangeHasOneTick) {
  EXPECT_EQ(linear_ticks(3, 3, 5, Unit::plain).at, (std::vector<double>{3}));
}

}  // namespace
}  // namespace lockstep
