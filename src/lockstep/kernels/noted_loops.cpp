#include "lockstep/kernels/noted_loops.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "lockstep/kernels/line_store_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;     // bytes
constexpr std::size_t kBlock = 1024;  // elements between two checks of the notes

// The exponent field of a floating-point type, whose elements are read as unsigned words.
template <typename Word>
struct Exponent {
  Word mask;
  Word lowest;

  [[nodiscard]] constexpr Word note(Word bits) const noexcept {
    return static_cast<Word>(static_cast<Word>(bits & mask) + lowest);
  }
  [[nodiscard]] constexpr bool is_full(Word notes) const noexcept {
    return (notes & static_cast<Word>(mask + lowest)) != 0;
  }
};

template <typename Stored>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Word = std::uint32_t;
  static constexpr Exponent<Word> kExponent{0x7F800000U, 0x00800000U};
};
template <>
struct FloatBits<double> {
  using Word = std::uint64_t;
  static constexpr Exponent<Word> kExponent{0x7FF0000000000000U, 0x0010000000000000U};
};
template <>
struct FloatBits<Float16> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7C00U, 0x0400U};
};
template <>
struct FloatBits<BFloat16> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7F80U, 0x0080U};
};

template <typename Stored>
[[gnu::always_inline]] inline typename FloatBits<Stored>::Word note_of(Stored value) noexcept {
  return FloatBits<Stored>::kExponent.note(std::bit_cast<typename FloatBits<Stored>::Word>(value));
}

// Notes are or-ed in several registers: one dependency chain would take longer than the copy.
// Written as a loop over elements, compilers turn this into a memcpy and a second pass over the
// source.
template <typename Store, typename Word>
Word copy_lines(std::byte* __restrict to, const std::byte* __restrict from, std::size_t lines,
                Exponent<Word> exponent) noexcept {
  constexpr std::size_t kParts = kLine / Store::kBytes;
  using Register [[gnu::vector_size(Store::kBytes)]] = Word;
  Register notes[kParts] = {};
  for (std::size_t i = 0; i < lines; ++i) {
    Store::begin_line(from + i * kLine);
    for (std::size_t part = 0; part < kParts; ++part) {
      const auto at = i * kLine + part * Store::kBytes;
      Register bits;
      std::memcpy(&bits, from + at, sizeof(bits));
      Store::write(to + at, bits);
      notes[part] |= (bits & exponent.mask) + exponent.lowest;
    }
  }
  Store::finish();
  Word all = 0;
  for (const auto& part : notes) {
    for (std::size_t i = 0; i < Store::kBytes / sizeof(Word); ++i) {
      all = static_cast<Word>(all | part[i]);
    }
  }
  return all;
}

}  // namespace

template <InstructionSet Set, typename Stored>
bool NotedLoops<Set, Stored>::copy(std::span<Stored> to, const Stored* from,
                                   Caching caching) noexcept {
  constexpr auto exponent = FloatBits<Stored>::kExponent;
  auto* const bytes = reinterpret_cast<std::byte*>(to.data());
  const auto* const source = reinterpret_cast<const std::byte*>(from);
  const auto lines = to.size_bytes() / kLine;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % kLine == 0;
  auto found = caching == Caching::past && is_aligned
                   ? copy_lines<StreamingStore>(bytes, source, lines, exponent)
                   : copy_lines<CachedStore>(bytes, source, lines, exponent);
  for (auto i = lines * (kLine / sizeof(Stored)); i < to.size(); ++i) {
    to[i] = from[i];
    found |= note_of(from[i]);
  }
  return exponent.is_full(found);
}

template <InstructionSet Set, typename Stored>
bool NotedLoops<Set, Stored>::add(std::span<Stored> to, const Stored* from) noexcept {
  typename FloatBits<Stored>::Word found = 0;
  auto* __restrict out = to.data();
  const auto* __restrict in = from;
  for (std::size_t i = 0; i < to.size(); ++i) {
    out[i] = narrowed<Stored>(widened(out[i]) + widened(in[i]));
    found |= note_of(out[i]);
  }
  return FloatBits<Stored>::kExponent.is_full(found);
}

template <InstructionSet Set, typename Stored>
bool NotedLoops<Set, Stored>::multiply(std::span<Stored> values, double factor) noexcept {
  const auto by = static_cast<WideOf<Stored>>(factor);
  typename FloatBits<Stored>::Word found = 0;
  for (auto& value : values) {
    found |= note_of(value);
    value = narrowed<Stored>(widened(value) * by);
  }
  return FloatBits<Stored>::kExponent.is_full(found);
}

template <InstructionSet Set, typename Stored>
bool NotedLoops<Set, Stored>::has_non_finite(std::span<const Stored> values) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    typename FloatBits<Stored>::Word found = 0;
    for (const auto value : values.subspan(begin, std::min(kBlock, values.size() - begin))) {
      found |= note_of(value);
    }
    if (FloatBits<Stored>::kExponent.is_full(found)) return true;
  }
  return false;
}

template struct NotedLoops<kCompiledFor, float>;
template struct NotedLoops<kCompiledFor, double>;
template struct NotedLoops<kCompiledFor, Float16>;
template struct NotedLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
