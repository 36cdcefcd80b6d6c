// `lockstep bench link`: the TCP links between the ranks of a job. docs/bench.md explains the
// output.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

/// Without a launcher, starts ranks on this machine; under one, this process is a rank.
int run_bench_link(const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
