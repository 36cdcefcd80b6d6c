// The command line of `lockstep run`, as a value. torchrun's spellings of the common flags are
// taken, with dashes or underscores.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/console_style.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::cli {

enum class Ranks {
  automatic,
  count,
  per_core,
  per_gpu
};  // automatic: per GPU, without any per core

struct LaunchOptions {
  Ranks ranks = Ranks::automatic;
  int num_ranks = 0;  // when ranks is count
  int num_nodes = 1;
  std::optional<int> node_rank;        // needed for several nodes
  std::optional<Endpoint> rendezvous;  // needed for several nodes
  bool pin = true;
  bool allow_shared_gpu = false;
  std::string show_ranks;  // as typed; the number of ranks is not known yet
  ColorChoice color = ColorChoice::automatic;
  std::chrono::milliseconds grace{30'000};
  std::chrono::milliseconds timeout{300'000};  // for all nodes to meet
  int max_restarts = 0;
  std::string run_dir;               // empty: runs/<program>-<time>-<token>
  std::string secret_file;           // empty: LOCKSTEP_SECRET_FILE, then the user's own
  std::vector<std::string> command;  // program and its arguments; never empty
  bool help = false;                 // asked for help: nothing else was read
};

/// Reads the arguments after `lockstep run`. Throws UsageError that names the argument and, for an
/// unknown option, the nearest one.
[[nodiscard]] LaunchOptions parse_run_options(const std::vector<std::string>& arguments);

/// What `lockstep run --help` prints; fits a screen.
[[nodiscard]] std::string run_help();

}  // namespace lockstep::cli
