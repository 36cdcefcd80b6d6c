// A set of ranks as text: "0-3,7".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// For example "0-3,7" for {7, 0, 1, 2, 3}; "" for none.
[[nodiscard]] std::string format_rank_list(std::span<const int> ranks);

/// The ranks of "0-3,7", sorted and without duplicates.
/// Throws UsageError for anything else, and for a rank that is not below `size`.
[[nodiscard]] std::vector<int> parse_rank_list(std::string_view text, int size);

}  // namespace lockstep
