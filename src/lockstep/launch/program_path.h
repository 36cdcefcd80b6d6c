// The files that the first word of a command can mean, in the order in which a shell tries them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep {

/// `program` itself if it contains a slash, else `program` in each folder of `environment`'s PATH.
/// Throws UsageError for an empty name.
[[nodiscard]] std::vector<std::string> program_candidates(const std::string& program,
                                                          const Environment& environment);

}  // namespace lockstep
