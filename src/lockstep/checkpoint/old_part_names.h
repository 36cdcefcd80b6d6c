// Names of parts in checkpoints of version 0.1. Where a program gave no name, that version took the
// type's: lockstep::AdamW was saved as "adam_w". Programs name their parts themselves now, and an
// optimizer is mostly "optimizer"; this finds it under its old name. Nothing writes old names.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

/// For each part in `tracked` that is not in `saved`, the old name that it has there. A part is
/// left out when `saved` has none of its old names, or two of them, and an old name is not taken
/// when a part of that very name is tracked.
[[nodiscard]] std::map<std::string, std::string> old_part_names(
    const std::set<std::string>& saved, const std::set<std::string>& tracked);

}  // namespace lockstep
