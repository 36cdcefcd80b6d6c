#include "lockstep/report/matrix_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/chart.h"

namespace lockstep {
namespace {

constexpr double kLeft = 120;  // for the names of the rows
constexpr double kTop = 84;    // for title, note and the names of the columns
constexpr double kWidth = 84;  // of a cell
constexpr double kHeight = 30;
constexpr double kGap = 24;  // below a matrix
constexpr double kLeastWidth = 640;
constexpr int kShades = 6;  // h1 to h6 of the style

double width_of(const MatrixChart& matrix) {
  return std::max(kLeastWidth, kLeft + kWidth * static_cast<double>(matrix.names.size()) + kGap);
}

double height_of(const MatrixChart& matrix) {
  return kTop + kHeight * static_cast<double>(matrix.names.size()) + kGap;
}

double largest_of(const MatrixChart& matrix) {
  double largest = 0;
  for (const auto& row : matrix.values) {
    for (const double value : row)
      largest = std::isfinite(value) ? std::max(largest, value) : largest;
  }
  return largest;
}

std::string text_at(double x, double y, std::string_view css_class, std::string_view text) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>)"
                     "\n",
                     css_class, x, y, escaped(text));
}

std::string cell_svg(double x, double y, double value, double largest, Unit unit) {
  if (!std::isfinite(value)) return "";
  const int shade =
      largest > 0 ? std::clamp(static_cast<int>(std::ceil(kShades * value / largest)), 1, kShades)
                  : 1;
  // The upper shades need the color of the background for their text.
  return fmt::format(
      R"svg(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="var(--h{})"/>
<text x="{:.1f}" y="{:.1f}" text-anchor="middle" fill="var(--{})">{}</text>
)svg",
      x + 1, y + 1, kWidth - 2, kHeight - 2, shade, x + kWidth / 2, y + kHeight / 2 + 4,
      shade > 4 ? "paper" : "ink", escaped(figure_text(value, unit)));
}

std::string matrix_svg(const MatrixChart& matrix, double top) {
  const double largest = largest_of(matrix);
  std::string svg = text_at(16, top + 24, "heading", matrix.title);
  svg += text_at(16, top + 44, "tx first", matrix.note);
  for (std::size_t i = 0; i < matrix.names.size(); ++i) {
    const auto at = static_cast<double>(i);
    svg += text_at(kLeft + kWidth * (at + 0.5), top + kTop - 8, "tx", matrix.names[i]);
    svg += text_at(kLeft - 8, top + kTop + kHeight * (at + 0.5) + 4, "ty", matrix.names[i]);
  }
  for (std::size_t row = 0; row < matrix.values.size(); ++row) {
    for (std::size_t column = 0; column < matrix.values[row].size(); ++column) {
      svg += cell_svg(kLeft + kWidth * static_cast<double>(column),
                      top + kTop + kHeight * static_cast<double>(row), matrix.values[row][column],
                      largest, matrix.unit);
    }
  }
  return svg;
}

}  // namespace

std::string matrix_svg_file(const std::vector<MatrixChart>& matrices) {
  std::string parts;
  double width = kLeastWidth;
  double height = 0;
  for (const auto& matrix : matrices) {
    parts += matrix_svg(matrix, height);
    width = std::max(width, width_of(matrix));
    height += height_of(matrix);
  }
  return svg_file(width, height, parts);
}

}  // namespace lockstep
