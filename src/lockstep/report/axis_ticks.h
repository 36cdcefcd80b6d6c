// Positions of the labels on an axis.
#pragma once

#include <vector>

#include "lockstep/report/figure_text.h"

namespace lockstep {

struct AxisTicks {
  std::vector<double> at = {};
  double step = 1;  // between two of them; on a logarithmic axis, the smallest value
};

/// Round values from `low` to `high`, about `wanted` of them. Times get multiples of 1, 2, 5, 10,
/// 15 and 30 seconds and minutes, and of hours and days; bytes get powers of two.
[[nodiscard]] AxisTicks linear_ticks(double low, double high, int wanted, Unit unit);

/// The powers of ten in [low, high], with 2 and 5 times these if there are fewer than two; for
/// bytes, at most eight powers of two. Requires 0 < low <= high.
[[nodiscard]] AxisTicks logarithmic_ticks(double low, double high, Unit unit);

}  // namespace lockstep
