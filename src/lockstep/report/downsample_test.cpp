#include "lockstep/report/downsample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

TEST(Downsample, AFewPointsStayAsTheyAre) {
  const std::vector<double> x{1, 2, 3};
  const std::vector<double> y{5, 4, 3};
  EXPECT_EQ(downsample(x, y, 3),
            (std::vector<CurvePoint>{{1, 5, 5, 5}, {2, 4, 4, 4}, {3, 3, 3, 3}}));
  EXPECT_TRUE(downsample({}, {}, 3).empty());
}

TEST(Downsample, NoSpikeDisappearsAndTheMeanIsKept) {
  std::vector<double> x(100'000);
  std::iota(x.begin(), x.end(), 1.0);
  std::vector<double> y(x.size(), 1.0);
  y[77'777] = 1000;
  y[123] = -50;
  const auto points = downsample(x, y, 500);
  EXPECT_EQ(points.size(), 500U);
  EXPECT_EQ(std::ranges::max(points, {}, &CurvePoint::high).high, 1000);
  EXPECT_EQ(std::ranges::min(points, {}, &CurvePoint::low).low, -50);
  double sum = 0;
  for (const auto& point : points) {
    sum += 200 * point.mean;  // every part has 200 points
    EXPECT_LE(point.low, point.mean);
    EXPECT_GE(point.high, point.mean);
  }
  EXPECT_NEAR(sum, std::accumulate(y.begin(), y.end(), 0.0), 1e-6 * sum);
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &CurvePoint::x));
}

TEST(Downsample, NanIsSkippedInAPartAndAPartOfNanIsAGap) {
  std::vector<double> x(100);
  std::iota(x.begin(), x.end(), 0.0);
  std::vector<double> y(100, 2.0);
  for (int i = 40; i < 60; ++i) y[static_cast<std::size_t>(i)] = std::nan("");
  y[5] = std::nan("");
  const auto points = downsample(x, y, 10);
  EXPECT_EQ(points[0].mean, 2);
  EXPECT_TRUE(std::isnan(points[4].mean));
  EXPECT_EQ(points[9].mean, 2);
}

TEST(Downsample, EqualPositionsBecomeOnePoint) {
  const std::vector<double> x(10, 7.0);
  const std::vector<double> y{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(downsample(x, y, 4), (std::vector<CurvePoint>{{7, 5.5, 1, 10}}));
}

}  // namespace
}  // namespace lockstep
