// Copies elements by whole lines of 64 bytes and notes those that are not finite, in one pass at
// the memory's speed.
//
// An element is not finite when all bits of its exponent are set. Its note is its exponent plus the
// lowest bit of exponents: that carries into the sign where all bits are set, and only there, so
// that notes of many elements are or-ed without a comparison.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Of a type of floating point, as unsigned words.
template <typename Word>
struct Exponent {
  Word mask;
  Word lowest;

  [[nodiscard]] constexpr Word note(Word bits) const noexcept {
    return static_cast<Word>(static_cast<Word>(bits & mask) + lowest);
  }
  /// Whether or-ed notes are of an element that is not finite.
  [[nodiscard]] constexpr bool is_full(Word notes) const noexcept {
    return (notes & static_cast<Word>(mask + lowest)) != 0;
  }
};

constexpr std::size_t kNotedLine = 64;
// Memory from this size on, of which a copy writes a part, is larger than a core's share of most
// last-level caches: written over from end to end, none of it is there any more when its turn comes
// again. What is written past the caches need not be read into them first, which is a third of what
// a copy moves on x86; whoever reads it next fetches it from memory either way.
constexpr std::size_t kStreamBytes = 8U << 20;

/// Copies `lines` lines; returns the or-ed notes of their elements. The spans do not overlap. Words
/// have 16, 32 or 64 bits.
template <typename Word>
Word copy_lines(std::byte* to, const std::byte* from, std::size_t lines,
                Exponent<Word> exponent) noexcept;

/// The same past the caches, where the processor does not do so by itself. `to` lies at a multiple
/// of 16 bytes. Later stores of this thread are seen after it, as after any other copy.
template <typename Word>
Word stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                  Exponent<Word> exponent) noexcept;

}  // namespace lockstep
