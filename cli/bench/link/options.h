// The command line of `lockstep bench link`, as a value.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::cli {

struct BenchLinkOptions {
  int num_ranks = 0;                    // 0: 2, or those of the launcher
  std::chrono::milliseconds time{300};  // per pair, direction and number of connections
  std::string json;                     // files; empty: not written
  std::string svg;
  bool help = false;  // --help is given; the other options are not set
};

/// Parses the arguments after `lockstep bench link`. Throws UsageError that names the argument and,
/// for an unknown option, the nearest known one.
[[nodiscard]] BenchLinkOptions parse_bench_link_options(const std::vector<std::string>& arguments);

/// The text of `lockstep bench link --help`; fits on one screen.
[[nodiscard]] std::string bench_link_help();

}  // namespace lockstep::cli
