// A matrix of figures as an SVG file, for example the rates between ranks: rows, columns and the
// shade of each cell. Pure.
#pragma once

#include <string>
#include <vector>

#include "lockstep/report/figure_text.h"

namespace lockstep {

struct MatrixChart {
  std::string title = {};
  std::string note = {};                         // one sentence below the title
  std::vector<std::string> names = {};           // of the rows, and of the columns
  std::vector<std::vector<double>> values = {};  // by row and column; NaN: an empty cell
  Unit unit = Unit::plain;
};

/// The matrices below each other, in one file. The largest value of a matrix has the darkest shade.
[[nodiscard]] std::string matrix_svg_file(const std::vector<MatrixChart>& matrices);

}  // namespace lockstep
