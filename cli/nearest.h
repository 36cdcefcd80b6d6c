// The known word that is nearest to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace lockstep::cli {

/// The candidate with the fewest edits from `word` (insert, delete, replace, swap of neighbors), if
/// they are at most a third of the letters of the longer word, or one. Otherwise the candidate that
/// torchrun and common training scripts call `word`. nullopt if there is neither.
[[nodiscard]] std::optional<std::string_view> try_nearest(
    std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lockstep::cli
