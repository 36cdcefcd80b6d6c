#include "lockstep/report/downsample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

// Collects the points of one part.
class Part {
 public:
  void add(double x, double y) {
    x_ += x;
    ++points_;
    if (std::isnan(y)) return;
    low_ = values_ == 0 ? y : std::min(low_, y);
    high_ = values_ == 0 ? y : std::max(high_, y);
    sum_ += y;
    ++values_;
  }
  [[nodiscard]] bool empty() const { return points_ == 0; }
  [[nodiscard]] CurvePoint point() const {
    const double x = x_ / points_;
    constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
    if (values_ == 0) return {x, kNothing, kNothing, kNothing};
    return {x, std::clamp(sum_ / values_, low_, high_), low_, high_};
  }

 private:
  double x_ = 0;
  double points_ = 0;
  double sum_ = 0;
  double low_ = 0;
  double high_ = 0;
  double values_ = 0;
};

}  // namespace

std::vector<CurvePoint> downsample(std::span<const double> x, std::span<const double> y,
                                   std::size_t most) {
  std::vector<CurvePoint> points;
  if (x.size() <= most) {
    points.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) points.push_back({x[i], y[i], y[i], y[i]});
    return points;
  }
  const double width = (x.back() - x.front()) / static_cast<double>(most);
  Part part;
  std::size_t current = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto index = width > 0 ? static_cast<std::size_t>((x[i] - x.front()) / width) : 0;
    const auto wanted = std::min(index, most - 1);
    if (wanted != current && !part.empty()) {
      points.push_back(part.point());
      part = {};
    }
    current = wanted;
    part.add(x[i], y[i]);
  }
  if (!part.empty()) points.push_back(part.point());
  return points;
}

}  // namespace lockstep
