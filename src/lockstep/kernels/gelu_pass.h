// GELU (tanh approximation) and its gradient as loops over memory. `Stored` is float or BFloat16;
// loops compute in float and round once. Elementwise IEEE arithmetic, never fused: the result is
// bit-identical on every processor and for every partition of the memory. train/gelu.h is the
// version for tensors.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"

namespace lockstep {

template <InstructionSet, typename Stored>
struct GeluLoops {
  static void forward(const Stored* x, Stored* y, std::size_t count) noexcept;
  static void backward(const Stored* dy, const Stored* x, Stored* dx, std::size_t count) noexcept;
};

/// y = gelu(x), element by element. Both have the same length and do not overlap.
template <typename Stored>
void gelu_pass(std::span<const Stored> x, std::span<Stored> y,
               InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(x.size() == y.size(), "gelu_pass: x and y differ in length");
  dispatch<GeluLoops, Stored>(set,
                              [&](auto loops) { loops.forward(x.data(), y.data(), x.size()); });
}

/// Sets dx, the gradient of x, from dy, the gradient of y. All have the same length; dx does not
/// overlap the others.
template <typename Stored>
void gelu_gradient_pass(std::span<const Stored> dy, std::span<const Stored> x, std::span<Stored> dx,
                        InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(dy.size() == x.size() && dx.size() == x.size(),
                  "gelu_gradient_pass: dy, x and dx differ in length");
  dispatch<GeluLoops, Stored>(
      set, [&](auto loops) { loops.backward(dy.data(), x.data(), dx.data(), x.size()); });
}

}  // namespace lockstep
