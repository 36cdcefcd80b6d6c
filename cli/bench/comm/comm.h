// `lockstep bench comm`: the time of collectives among ranks of this machine, or of a launcher's
// job. docs/bench.md explains the output.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/bench/comm/options.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// Without a launcher, starts ranks on this machine; under one, this process is a rank.
int run_bench_comm(const std::vector<std::string>& arguments, Streams streams);

/// This process as a rank of a launcher's job, which may be on several hosts; rank 0 prints and
/// writes the files. Collective: the ranks measure together. Throws UsageError for --compare.
int run_bench_comm_in_job(const BenchCommOptions& options, const Environment& environment,
                          std::ostream& out);

/// `bench comm-rank REQUEST ANSWER`: one rank of lockstep's backend, started by the launcher.
int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
