// The mapping from values to positions that both forms of a chart share.
#pragma once

#include <string>

#include "lockstep/report/axis_ticks.h"
#include "lockstep/report/chart.h"

namespace lockstep {

/// One direction of a chart: a range of values and the ticks in it.
struct ChartScale {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  AxisTicks ticks = {};

  /// 0 at `low`, 1 at `high`.
  [[nodiscard]] double operator()(double value) const;
};

struct ChartFrame {
  ChartScale x;
  ChartScale y;
};

/// Ranges that contain all values, with ticks. Requires a chart with at least one finite value.
[[nodiscard]] ChartFrame frame_of(const Chart& chart, int x_ticks, int y_ticks);

/// Whether a series has a finite value.
[[nodiscard]] bool has_values(const Chart& chart);

/// The lines and bands of the series in a coordinate system of 1000 x 1000, y downwards.
[[nodiscard]] std::string curves_svg(const Chart& chart, const ChartFrame& frame);

}  // namespace lockstep
