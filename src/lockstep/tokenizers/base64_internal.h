// Strict Base64 (RFC 4648): with padding and without white space.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Decodes `text`; empty if it is not exactly what an encoder writes.
[[nodiscard]] std::optional<std::string> try_base64(std::string_view text);

}  // namespace lockstep
