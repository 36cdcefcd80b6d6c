// Figures as short texts for people: the labels of charts, pages and terminal reports.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// What a figure measures; its text has the fitting unit.
enum class Unit {
  plain,         // 2.1611
  count,         // 14.8k
  fraction,      // 0.939 is 93.9 %
  seconds,       // 1.2 ms, 3.4 s
  duration,      // 1 min 28 s
  bytes,         // 1.5 GiB
  bytes_rate,    // 12.1 GB/s
  count_rate,    // 14.8k/s
  milliseconds,  // 138.1 ms
};

/// "14.8k", "0.00031", "93.9 %". Four significant digits; "–" for NaN and infinities.
[[nodiscard]] std::string figure_text(double value, Unit unit);

/// The label of a tick: as many digits as ticks that are `step` apart need.
[[nodiscard]] std::string tick_text(double value, double step, Unit unit);

/// "600", "12,345".
[[nodiscard]] std::string grouped(long long value);

/// Replaces the five characters that have a meaning in HTML and SVG, and bytes that are no UTF-8.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace lockstep
