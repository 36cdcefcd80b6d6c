// Copies of memory through the caches or past them.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/kernels/caching.h"
#include "lockstep/kernels/dispatch.h"

namespace lockstep {

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
