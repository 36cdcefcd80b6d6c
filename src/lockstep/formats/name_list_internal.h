// Names of a file, as a message lists them.
#pragma once

#include <span>
#include <string>

namespace lockstep {

/// The first eight in quotes and how many more there are; "none" for none.
[[nodiscard]] std::string name_list(std::span<const std::string> names);

}  // namespace lockstep
