// How numbers of a run are written for people: a line of progress, amounts, times. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::cli {

struct Progress {
  std::int64_t step = 0;
  std::optional<std::int64_t> steps = {};  // of the whole run; none: it has a time
  double loss = 0;
  double rate = 0;
  double units_per_second = 0;
  std::string unit = "tok";
  double data_wait = 0;                           // share of the time
  double exposed = 0;                             // communication that was waited for: share
  std::optional<std::chrono::seconds> left = {};  // until the end
};

/// "step 120/300  loss 2.4312  41.2k tok/s  0:52 left  rate 9.1e-04  data wait 0.1 %  exposed comm
/// 2.3 %", as much of it as `columns` hold, from the left.
[[nodiscard]] std::string progress_line(const Progress& progress, int columns = 1000);

/// 950, 41.2k, 3.1M, 2.5G.
[[nodiscard]] std::string short_number(double value);
/// 0:52, 12:03, 3:07:59.
[[nodiscard]] std::string clock_text(std::chrono::seconds time);

}  // namespace lockstep::cli
