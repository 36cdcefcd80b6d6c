// Curves as text, for the end of a run. Pure.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotCurve {
  char mark = '.';
  std::vector<PlotPoint> points = {};  // those that are not finite are left out
};

struct PlotOptions {
  int width = 64;   // columns of the field, without the numbers at its side
  int height = 10;  // lines of it
  std::string x_name = "step";
};

/// The curves in one field, later ones over earlier ones, with the least and greatest values at its
/// sides. Empty when there are fewer than two points.
[[nodiscard]] std::string text_plot(const std::vector<PlotCurve>& curves,
                                    const PlotOptions& options = {});

}  // namespace lockstep::cli
