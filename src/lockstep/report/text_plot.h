// Plots curves as text, for terminals. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotCurve {
  char mark = '.';
  std::vector<PlotPoint> points = {};  // points that are not finite are left out
};

struct PlotOptions {
  int width = 64;   // columns of the field, without the labels
  int height = 10;  // lines of the field
  std::string x_name = "step";
};

/// Draws the curves in one field, later ones over earlier ones, and labels the axes with the
/// smallest and largest values. Empty when there are fewer than two points.
[[nodiscard]] std::string text_plot(const std::vector<PlotCurve>& curves,
                                    const PlotOptions& options = {});

}  // namespace lockstep
