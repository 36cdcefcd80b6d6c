// A verb with verbs of its own, such as `lockstep data inspect`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

/// Runs the one of `sub_verbs` that `arguments` begin with; shows `help` when asked to, when there
/// is no word, and the nearest match when the word is none of them. A UsageError of a sub-verb is
/// shown with its name and becomes kUsage, any other Error kFailure.
[[nodiscard]] int dispatch_sub_verb(std::string_view verb, std::span<const Verb> sub_verbs,
                                    std::string_view help,
                                    const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
