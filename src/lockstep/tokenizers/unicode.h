// The part of Unicode that GPT-2's split needs: UTF-8, and whether a code point is a letter, a
// number or a space. Letters and numbers are the general categories L* and N* of Unicode 16.0,
// spaces the property White_Space, as in the regular expressions of tiktoken 0.14.0.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep {

enum class CodePointClass : unsigned char { letter, number, space, other };

[[nodiscard]] CodePointClass classify(char32_t code_point) noexcept;

/// The offset of the first invalid UTF-8 sequence; empty if `text` is valid. Overlong forms,
/// surrogates and values above U+10FFFF are invalid.
[[nodiscard]] std::optional<std::size_t> try_find_invalid_utf8(std::string_view text) noexcept;

struct CodePoint {
  char32_t value;
  std::size_t num_bytes;
};

/// The code point that begins at `at`. `text` is valid UTF-8.
[[nodiscard]] CodePoint code_point_at(std::string_view text, std::size_t at) noexcept;

}  // namespace lockstep
