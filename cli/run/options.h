// The options of `lockstep run`. The common options have torchrun's names, with dashes or
// underscores.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/nodes.h"
#include "lockstep/launch/console_style.h"

namespace lockstep::cli {

enum class Ranks {
  automatic,  // one per GPU, or one per core without GPUs
  count,
  per_core,
  per_gpu
};

struct RunCommandOptions {
  Ranks ranks = Ranks::automatic;
  int num_ranks = 0;  // when ranks is count
  NodeOptions nodes;
  bool pin = true;
  bool allow_shared_gpu = false;
  std::string show_ranks;  // not yet checked: the number of ranks is unknown here
  ColorChoice color = ColorChoice::automatic;
  std::chrono::milliseconds grace{30'000};
  int max_restarts = 0;
  std::string run_dir;  // empty: runs/<program>-<time>-<token>
  // nullopt: metrics are not served
  std::optional<std::uint16_t> metrics_port;
  std::vector<std::string> command;  // program and its arguments; never empty
  bool help = false;                 // help was requested; the other values are not set
};

/// Reads the arguments after `lockstep run`. Throws UsageError that names the argument and, for an
/// unknown option, the nearest one.
[[nodiscard]] RunCommandOptions parse_run_options(const std::vector<std::string>& arguments);

/// The output of `lockstep run --help`; it fits a screen.
[[nodiscard]] std::string run_help();

}  // namespace lockstep::cli
