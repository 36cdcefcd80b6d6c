// The median of a list that is not empty; the mean of the two middle values if there are two.
#pragma once

#include <algorithm>
#include <vector>

namespace lockstep {

[[nodiscard]] inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lockstep
