// A list of names for a message.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// The first eight names in quotes, and the number of others; "none" for an empty list.
[[nodiscard]] std::string name_list(std::span<const std::string> names);

}  // namespace lockstep
