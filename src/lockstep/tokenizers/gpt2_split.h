// How GPT-2 cuts text into pieces before it looks for tokens: contractions, words with the space
// before them, numbers, runs of other signs, runs of white space. The regular expression is
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// and this is it, by hand: alternatives in that order, at each place the first that fits.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// Where the piece that begins at `begin` ends. `text` is valid UTF-8 and goes on at `begin`, which
/// is 0 or the end of the piece before.
[[nodiscard]] std::size_t gpt2_piece_end(std::string_view text, std::size_t begin) noexcept;

/// The first place at or after `from` where a piece ends whatever lies before and behind: between a
/// letter and a space that a letter follows. The end of `text` if there is none. So a long text can
/// be cut there, and its parts' tokens are the whole's.
[[nodiscard]] std::size_t gpt2_cut(std::string_view text, std::size_t from) noexcept;

}  // namespace lockstep
