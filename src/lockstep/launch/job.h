// One job from start to end on this node: folder, secret, rendezvous, rounds of workers, restarts,
// report. `lockstep run` calls it, and so does init() when a program starts its own ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/rendezvous/network_settings.h"

namespace lockstep {

struct JobOptions {
  std::vector<std::string> command = {};  // program and arguments
  int num_ranks = 1;                      // on this node
  int num_nodes = 1;
  int node = 0;
  std::optional<Endpoint> rendezvous = {};  // where several nodes meet; its host is node 0
  NetworkSettings network = {};             // of the ranks
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
  // Called once with the path of the run folder, before the first worker starts.
  std::function<void(const std::string& folder)> opened = {};
  // The port that serves metrics for Prometheus (metrics_listener.h); 0: a free one; nullopt: none.
  std::optional<std::uint16_t> metrics_port = {};
  std::string metrics_folder = {};  // the folder of metrics.jsonl; empty: the run folder
};

/// Runs the job. Returns the launcher's exit code (exit_code.h) when all its processes have ended.
/// The failure report is its last output.
/// Throws UsageError for invalid options, before any worker is started.
[[nodiscard]] int run_job(const JobOptions& options, const Environment& environment);

/// The path of the secret that nodes share: LOCKSTEP_SECRET_FILE, else lockstep/secret in
/// XDG_CONFIG_HOME or ~/.config. Throws UsageError when HOME is not set either.
[[nodiscard]] std::string default_secret_file(const Environment& environment);

}  // namespace lockstep
