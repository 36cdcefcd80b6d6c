// GPT-2's split of text into pieces, before tokenization: contractions, words with the preceding
// space, numbers, runs of other characters, runs of white space. The regular expression is
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// This file implements it directly: at each position, it takes the first alternative that matches.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// The end of the piece that begins at `begin`. `text` is valid UTF-8; `begin` is below its size,
/// and is 0 or the end of the previous piece.
[[nodiscard]] std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) noexcept;

/// The first offset at or after `from` where a piece ends in any context: between a letter and a
/// space that a letter follows. The end of `text` if there is none. A long text can be divided
/// there: the tokens of the parts are the tokens of the whole.
[[nodiscard]] std::size_t gpt2_cut(std::string_view text, std::size_t from) noexcept;

}  // namespace lockstep
