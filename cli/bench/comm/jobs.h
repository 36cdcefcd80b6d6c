// The backends that `lockstep bench comm` measures: lockstep's own, and the peers it is compared
// with. Each is a job under the launcher, which pins the ranks, names the rank that fails and
// removes what the job leaves.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/bench/comm/options.h"
#include "cli/bench/comm/request.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

struct BackendJob {
  std::string name = {};                  // lockstep, gloo, mpi
  std::vector<std::string> command = {};  // the paths of request and answer are appended
  int num_ranks = 1;  // started by the launcher; 1 if the command starts its own ranks
};

/// Lockstep's backend first, then the requested peers. Throws UsageError, with the next step, for a
/// peer that is not installed on this machine.
[[nodiscard]] std::vector<BackendJob> find_backends(const BenchCommOptions& options, int num_ranks,
                                                    int cores, const Environment& environment);

/// Runs one backend once, with its files in `folder`, which the caller removes. Returns its answer,
/// or the launcher's exit code if the job failed; the launcher has printed the failure.
[[nodiscard]] std::variant<CommAnswer, int> run_backend(const BackendJob& job,
                                                        const CommRequest& request,
                                                        const std::string& folder, int round,
                                                        const Environment& environment);

/// The request for a peer. Peers have only ordinary memory, so the request holds each case once.
[[nodiscard]] CommRequest peer_request(const CommRequest& request);

}  // namespace lockstep::cli
