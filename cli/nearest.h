// The word a person probably meant.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace lockstep::cli {

/// The candidate nearest to `word` by edits (insert, delete, replace, swap of neighbours), if it is
/// near enough to be a slip: at most a third of the longer word's letters, at least one. Else the
/// candidate that torchrun and common training scripts call `word`, if there is one.
[[nodiscard]] std::optional<std::string_view> try_nearest(
    std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lockstep::cli
