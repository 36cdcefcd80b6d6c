// Base64 as RFC 4648 has it, with padding and nothing else between the letters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The bytes that `text` stands for; nothing when it is not exactly what an encoder writes.
[[nodiscard]] std::optional<std::string> try_base64(std::string_view text);

}  // namespace lockstep
