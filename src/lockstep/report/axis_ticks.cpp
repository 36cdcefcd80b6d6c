#include "lockstep/report/axis_ticks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep {
namespace {

// The smallest of the round values that is at least `least`.
double round_step(double least, Unit unit) {
  constexpr std::array kTimes{1.0,     2.0,     5.0,     10.0,    15.0,     30.0,     60.0,
                              120.0,   300.0,   600.0,   900.0,   1800.0,   3600.0,   7200.0,
                              10800.0, 21600.0, 43200.0, 86400.0, 172800.0, 432000.0, 864000.0};
  if (unit == Unit::duration && least > kTimes.front() / 2) {
    const auto found = std::ranges::lower_bound(kTimes, least);
    return found == kTimes.end() ? 864000 * std::ceil(least / 864000) : *found;
  }
  if (unit == Unit::bytes) return std::exp2(std::ceil(std::log2(least)));
  const double decade = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    // Counts are integers: no ticks at 2.5 steps.
    if (factor == 2.5 && unit == Unit::count && decade < 10) continue;
    if (factor * decade >= least * (1 - 1e-9)) return factor * decade;
  }
  return 10 * decade;
}

AxisTicks powers_of_two(double low, double high) {
  constexpr double kMost = 8;
  const double first = std::ceil(std::log2(low) - 1e-6);
  const double last = std::floor(std::log2(high) + 1e-6);
  const double stride = std::max(1.0, std::ceil((last - first + 1) / kMost));
  AxisTicks ticks{.step = low};
  for (double power = first; power <= last; power += stride) ticks.at.push_back(std::exp2(power));
  return ticks;
}

}  // namespace

AxisTicks linear_ticks(double low, double high, int wanted, Unit unit) {
  if (!(high > low)) return {{low}, std::abs(low) > 0 ? std::abs(low) : 1};
  // Rather a few more than half as many.
  auto step = round_step(0.72 * (high - low) / std::max(wanted, 1), unit);
  if (unit == Unit::count) step = std::max(step, 1.0);
  AxisTicks ticks{.step = step};
  for (double index = std::ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; ++index) {
    ticks.at.push_back(index * step);
  }
  return ticks;
}

AxisTicks logarithmic_ticks(double low, double high, Unit unit) {
  if (unit == Unit::bytes) return powers_of_two(low, high);
  for (const auto& factors : {std::vector{1.0}, std::vector{1.0, 2.0, 5.0}}) {
    AxisTicks ticks{.step = low};
    for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high * 1.000001;
         decade *= 10) {
      for (const double factor : factors) {
        const double value = factor * decade;
        if (value >= low * 0.999999 && value <= high * 1.000001) ticks.at.push_back(value);
      }
    }
    if (ticks.at.size() >= 2 || factors.size() > 1) return ticks;
  }
  return {};
}

}  // namespace lockstep
