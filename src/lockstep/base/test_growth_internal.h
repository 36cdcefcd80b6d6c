// For tests of parsers of malicious input: the cost of rejecting an input grows linearly with its
// length, not quadratically.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <string>

namespace lockstep {

inline double least_processor_seconds(const std::function<void()>& act) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::clock();
    act();
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

// `large` is ten times as long as `small`, so a linear `act` costs about ten times as much and a
// quadratic one a hundred times. The limit lies between. A cost below 0.05 s always passes.
inline void expect_linear_cost(const std::string& small, const std::string& large,
                               const std::function<void(const std::string&)>& act) {
  const auto of_small = least_processor_seconds([&] { act(small); });
  const auto of_large = least_processor_seconds([&] { act(large); });
  EXPECT_LT(of_large, 30 * of_small + 0.05)
      << small.size() << " bytes took " << of_small << " s, " << large.size() << " bytes "
      << of_large << " s: " << large.substr(0, 60);
}

}  // namespace lockstep
