// GELU by tanh and its gradient as loops over memory.
#pragma once

#include <cstddef>

#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

/// `Stored` is float or BFloat16; computed in float and rounded once.
template <InstructionSet, typename Stored>
struct GeluLoops {
  static void forward(const Stored* x, Stored* y, std::size_t count) noexcept;
  static void backward(const Stored* dy, const Stored* x, Stored* dx, std::size_t count) noexcept;
};

/// y = gelu(x).
template <typename Stored>
void gelu_pass(const Stored* x, Stored* y, std::size_t count,
               InstructionSet set = best_instruction_set()) noexcept {
  dispatch<GeluLoops, Stored>(set, [&](auto loops) { loops.forward(x, y, count); });
}

/// The gradient for x, from the one for y.
template <typename Stored>
void gelu_gradient_pass(const Stored* dy, const Stored* x, Stored* dx, std::size_t count,
                        InstructionSet set = best_instruction_set()) noexcept {
  dispatch<GeluLoops, Stored>(set, [&](auto loops) { loops.backward(dy, x, dx, count); });
}

}  // namespace lockstep
