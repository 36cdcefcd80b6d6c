// A curve of many points as at most n points of a chart, each with the range of the values that it
// replaces: no spike disappears.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

struct CurvePoint {
  double x = 0;     // mean of the replaced points
  double mean = 0;  // NaN: the curve has a gap here
  double low = 0;
  double high = 0;

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};

/// Divides the range of `x`, which ascends, into `most` equal parts and returns one point for each
/// part that has values. If there are at most `most` points, returns them unchanged. A part with
/// NaN only gives a point whose mean is NaN. Requires x.size() == y.size() and most > 0.
[[nodiscard]] std::vector<CurvePoint> downsample(std::span<const double> x,
                                                 std::span<const double> y, std::size_t most);

}  // namespace lockstep
