// The progress line of a run, and how it writes numbers and times. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::cli {

struct Progress {
  std::int64_t step = 0;
  std::optional<std::int64_t> steps = {};  // of the whole run; nullopt: its length is a time
  double loss = 0;
  double lr = 0;
  double units_per_second = 0;
  std::string unit = "tok";
  double data_wait = 0;                           // fraction of the time
  double exposed = 0;                             // exposed communication, fraction of the time
  std::optional<std::chrono::seconds> left = {};  // until the end
};

/// "step 120/300  loss 2.4312  41.2k tok/s  0:52 left  lr 9.10e-04  data wait 0.1 %  exposed comm
/// 2.3 %"; parts at the right that do not fit `columns` are left out.
[[nodiscard]] std::string progress_line(const Progress& progress, int columns = 1000);

/// 950, 41.2k, 3.1M, 2.5G.
[[nodiscard]] std::string short_number(double value);
/// 0:52, 12:03, 3:07:59.
[[nodiscard]] std::string clock_text(std::chrono::seconds time);

}  // namespace lockstep::cli
