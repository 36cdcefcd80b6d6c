// A verb with sub-verbs, such as `lockstep data inspect`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

/// Runs the sub-verb that `arguments` begin with and returns its exit code. Prints `help` on
/// request and when there are no arguments; for an unknown word prints the nearest sub-verb and
/// returns kUsage. An Error of the sub-verb is printed with its name: a UsageError returns kUsage,
/// any other kFailure.
[[nodiscard]] int dispatch_sub_verb(std::string_view verb, std::span<const Verb> sub_verbs,
                                    std::string_view help,
                                    const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
