// The last lines of a benchmark with a bar: tools/gpu_check collects them from all programs into
// one table.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace lockstep {

/// "bar: checkpoint, stall | 3.1 ms | <= 5 ms | met". An empty `bar` means that the value is only
/// printed.
inline void print_bar(const std::string& measure, const std::string& value,
                      const std::string& bar = "", bool is_met = true) {
  fmt::print("bar: {} | {} | {} | {}\n", measure, value, bar.empty() ? "printed" : bar,
             bar.empty() ? "" : (is_met ? "met" : "MISSED"));
  std::fflush(stdout);
}

}  // namespace lockstep
