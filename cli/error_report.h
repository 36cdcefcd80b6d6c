// Reports the error of a verb, in the command and in its sibling programs.
#pragma once

#include <iosfwd>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::cli {

/// Exit codes of the command. `lockstep run` returns that of the program it starts.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

/// Writes "lockstep <verb>: <error>" to `out`. Returns the exit code: kUsage for a UsageError, else
/// `failure`.
[[nodiscard]] int report(std::string_view verb, const Error& error, std::ostream& out,
                         int failure = kFailure);

}  // namespace lockstep::cli
