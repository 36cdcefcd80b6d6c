// One job from start to end on this node: folder, secret, rendezvous, rounds of workers, restarts,
// report. `lockstep run` calls it, and so does init() when a program starts its own ranks.
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
  bool announce = true;         // print the rendezvous and the folder of the logs at the start
  bool speaks_for_all = false;  // show only the lines of rank 0, without a prefix
  bool pin = true;
  std::string show_ranks = {};  // "0,3-5"; empty: all
  ColorChoice color = ColorChoice::automatic;
  std::chrono::milliseconds grace{30'000};
  std::chrono::milliseconds timeout{300'000};  // for all nodes to meet
  int max_restarts = 0;
  std::optional<int> final_code = {};  // after a rank exits with it, there is no restart
  std::string run_dir = {};            // empty: runs/<program>-<time>-<token>
  std::string secret_file = {};        // empty: default_secret_file
};

/// Runs the job. Returns the launcher's exit code (exit_code.h) when all its processes have ended.
/// The failure report is its last output.
/// Throws UsageError for invalid options, before any worker is started.
[[nodiscard]] int run_job(const JobOptions& options, const Environment& environment);

/// The path of the secret that nodes share: LOCKSTEP_SECRET_FILE, else lockstep/secret in
/// XDG_CONFIG_HOME or ~/.config. Throws UsageError when HOME is not set either.
[[nodiscard]] std::string default_secret_file(const Environment& environment);

}  // namespace lockstep
