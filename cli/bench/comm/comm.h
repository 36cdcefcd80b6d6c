// `lockstep bench comm`: how fast the collectives of this machine are. docs/bench.md tells how to
// read what it prints.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

int run_bench_comm(const std::vector<std::string>& arguments, Streams streams);

/// What the ranks of our own engine execute: `bench comm-rank REQUEST ANSWER`, under the launcher.
int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
