// Bytes as letters, the way GPT-2's files write them: printable bytes as themselves, the other 68
// as the code points from U+0100 on, in the order of their values. Printable ones first is also the
// order of the bytes' numbers.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// The bytes in the order of their numbers.
[[nodiscard]] const std::array<unsigned char, 256>& bytes_in_order() noexcept;

/// The bytes that `letters`, UTF-8, stand for; nothing if one of them stands for none.
[[nodiscard]] std::optional<std::string> try_bytes_of_letters(std::string_view letters);

}  // namespace lockstep
