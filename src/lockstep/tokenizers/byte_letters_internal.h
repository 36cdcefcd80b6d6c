// GPT-2's encoding of bytes as letters: printable bytes as themselves, the other 68 as the code
// points from U+0100, in the order of their values. The bytes' token numbers have the same order:
// printable bytes first.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The bytes in the order of their token numbers.
[[nodiscard]] const std::array<unsigned char, 256>& bytes_in_order() noexcept;

/// Decodes `letters`, in UTF-8, to bytes; empty if a letter represents no byte.
[[nodiscard]] std::optional<std::string> try_bytes_of_letters(std::string_view letters);

}  // namespace lockstep
