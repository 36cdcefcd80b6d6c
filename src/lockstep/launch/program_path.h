// Which files a command's first word may mean, in the order a shell tries them.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep {

/// `program` itself when it holds a slash, else its name in each folder of `environment`'s PATH.
/// Throws UsageError for an empty name.
[[nodiscard]] std::vector<std::string> program_candidates(const std::string& program,
                                                          const Environment& environment);

}  // namespace lockstep
