// Copies of memory through the caches or past them.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/kernels/dispatch.h"

namespace lockstep {

/// A buffer of at least this size exceeds the part of most last-level caches that one core can use:
/// after the whole buffer has been written, none of it is still cached. A copy into such a buffer
/// bypasses the caches. The destination is then not read into them first, which on x86 saves one
/// third of the traffic of a copy. A later reader fetches it from memory in both cases.
constexpr std::size_t kStreamBytes = 8U << 20;

enum class Caching { through, past };

/// How to write parts of a buffer of `bytes`, which are all written before one is read.
[[nodiscard]] constexpr Caching caching_for(std::size_t bytes) noexcept {
  return bytes >= kStreamBytes ? Caching::past : Caching::through;
}

template <InstructionSet>
struct CopyLoops {
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
};

/// As memcpy, past the caches. A later release store orders it, as it orders memcpy.
inline void copy_past(std::span<std::byte> to, const std::byte* from,
                      InstructionSet set = best_instruction_set()) noexcept {
  dispatch<CopyLoops>(set, [&](auto loops) { loops.copy(to.data(), from, to.size()); });
}

inline void copy_pass(std::span<std::byte> to, const std::byte* from, Caching caching) noexcept {
  if (caching == Caching::past) return copy_past(to, from);
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

}  // namespace lockstep
