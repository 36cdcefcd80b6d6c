// Part names in checkpoints of version 0.1. If a program gave no name, that version used the name
// of the type: lockstep::AdamW was saved as "adam_w". Now programs name their parts, and an
// optimizer is usually "optimizer". This file maps it to its old name. Nothing writes old names.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

/// For each part in `tracked` that is not in `saved`: its old name in `saved`. A part is left out
/// if `saved` has none or two of its old names. An old name is not used if a part with that name is
/// tracked.
[[nodiscard]] std::map<std::string, std::string> old_part_names(
    const std::set<std::string>& saved, const std::set<std::string>& tracked);

}  // namespace lockstep
