// Reads times such as 500ms, 30s, 2min and 6h; a number without a unit is in seconds.
#pragma once

#include <chrono>
#include <string_view>

namespace lockstep::cli {

/// Throws UsageError that names `option` and the text for any other text and for a negative time.
[[nodiscard]] std::chrono::milliseconds parse_duration(std::string_view option,
                                                       std::string_view text);

}  // namespace lockstep::cli
