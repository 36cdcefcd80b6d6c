// One job from start to end on this node: folder, secret, rendezvous, rounds of workers, restarts,
// report. What `lockstep run` does, and what init() does when a program makes its own ranks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {

struct JobOptions {
  std::vector<std::string> command = {};  // program and arguments
  int num_ranks = 1;                      // on this node
  int num_nodes = 1;
  int node = 0;
  std::optional<Endpoint> rendezvous = {};  // where several nodes meet; its host is node 0
  bool announce = true;         // say first where the ranks meet and where their logs are
  bool speaks_for_all = false;  // rank 0 does: its lines are shown as they are, no other's are
  bool pin = true;
  std::string show_ranks = {};  // "0,3-5"; empty: all
  ColorChoice color = ColorChoice::automatic;
  std::chrono::milliseconds grace{30'000};
  std::chrono::milliseconds timeout{300'000};  // for all nodes to meet
  int max_restarts = 0;
  std::optional<int> final_code = {};  // a rank that exits with it is not started again
  std::string run_dir = {};            // empty: runs/<program>-<time>-<token>
  std::string secret_file = {};        // empty: default_secret_file
};

/// Runs the job and returns the launcher's exit code (exit_code.h). What failed is the last thing
/// printed. Throws UsageError before any worker is started, for options that cannot be.
[[nodiscard]] int run_job(const JobOptions& options, const Environment& environment);

/// Where the secret that nodes share is kept: LOCKSTEP_SECRET_FILE, else lockstep/secret in
/// XDG_CONFIG_HOME or
/// ~/.config. Throws UsageError when there is no home.
[[nodiscard]] std::string default_secret_file(const Environment& environment);

}  // namespace lockstep
