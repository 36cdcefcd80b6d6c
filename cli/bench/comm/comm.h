// `lockstep bench comm`: the time of collectives among ranks of this machine. docs/bench.md
// explains the output.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

int run_bench_comm(const std::vector<std::string>& arguments, Streams streams);

/// `bench comm-rank REQUEST ANSWER`: one rank of lockstep's backend, started by the launcher.
int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
