// Loops that the passes of room kernels are compared with, in the widest vectors of this processor.
#pragma once

#include <cstddef>

#include "lockstep/kernels/dispatch.h"

namespace lockstep {

template <InstructionSet>
struct LimitLoops {
  static void triad(float* a, const float* b, float s, std::size_t count) noexcept;
  static void root_and_divide(float* a, std::size_t count, std::size_t turns) noexcept;
};

/// a[i] = a[i] + s b[i].
inline void triad(float* a, const float* b, float s, std::size_t count) noexcept {
  dispatch<LimitLoops>(best_instruction_set(), [&](auto loops) { loops.triad(a, b, s, count); });
}

/// One square root and one division per element, `turns` times over the same elements.
inline void root_and_divide(float* a, std::size_t count, std::size_t turns) noexcept {
  dispatch<LimitLoops>(best_instruction_set(),
                       [&](auto loops) { loops.root_and_divide(a, count, turns); });
}

}  // namespace lockstep
