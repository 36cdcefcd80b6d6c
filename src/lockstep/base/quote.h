// Text of unknown origin in a message: terminal control characters are escaped, long text is cut.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` in double quotes, at most its first 100 bytes, with every byte outside printable ASCII
/// (and the quote and backslash) as \xHH.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace lockstep
