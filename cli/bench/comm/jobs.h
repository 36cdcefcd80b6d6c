// The engines that `lockstep bench comm` starts: ours, and the peers it is held against. Each is a
// job under the launcher, which pins the ranks, names what fails and leaves nothing behind.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/bench/comm/options.h"
#include "cli/bench/comm/request.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

struct EngineJob {
  std::string name = {};                  // shm, gloo, mpi
  std::vector<std::string> command = {};  // request and answer follow
  int num_ranks = 1;  // that the launcher starts: one where the command starts its own
};

/// Ours first, then the peers asked for. Throws UsageError, with the next step, for a peer that is
/// not on this machine.
[[nodiscard]] std::vector<EngineJob> find_engines(const BenchCommOptions& options, int num_ranks,
                                                  int cores, const Environment& environment);

/// Runs one engine once, with its files in `folder`, which the caller removes. Returns its answer;
/// when it did not end well, the launcher's exit code: what failed has been printed.
[[nodiscard]] std::variant<CommAnswer, int> run_engine(const EngineJob& job,
                                                       const CommRequest& request,
                                                       const std::string& folder, int round,
                                                       const Environment& environment);

/// The request as a peer gets it: it has ordinary memory alone, so each case once.
[[nodiscard]] CommRequest peer_request(const CommRequest& request);

}  // namespace lockstep::cli
