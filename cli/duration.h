// Times as a person types them: 500ms, 30s, 2min, 6h; a number alone is seconds.
#pragma once

#include <chrono>
#include <string_view>

namespace lockstep::cli {

/// Throws UsageError, naming `option` and what was typed, for anything else, or for a negative
/// time.
[[nodiscard]] std::chrono::milliseconds parse_duration(std::string_view option,
                                                       std::string_view text);

}  // namespace lockstep::cli
