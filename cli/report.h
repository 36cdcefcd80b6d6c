// How a verb ends that failed, in the command and in the programs beside it.
#pragma once

#include <iosfwd>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::cli {

/// Exit codes of the command itself; a program it starts has its own.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

/// Writes "lockstep <verb>: <error>" to `out`. Returns the exit code: kUsage for a UsageError, else
/// `failure`.
[[nodiscard]] int report(std::string_view verb, const Error& error, std::ostream& out,
                         int failure = kFailure);

}  // namespace lockstep::cli
