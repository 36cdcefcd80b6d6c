// The verbs of the program lockstep-data.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep data audit`. Throws UsageError.
int run_audit(const std::vector<std::string>& arguments);

/// `lockstep bench data`. Throws UsageError.
int run_bench(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
