// The softmax of causal attention and its gradient as loops over memory. A matrix is `length` rows
// of `length`: row i scores the places that place i may look at, which are 0 to i.
#pragma once

#include <cstddef>

#include "lockstep/kernels/dispatch.h"

namespace lockstep {

template <InstructionSet>
struct CausalSoftmaxLoops {
  static void forward(float* scores, std::size_t length, float scale) noexcept;
  static void backward(const float* shares, float* gradients, std::size_t length,
                       float scale) noexcept;
};

/// In place: each row of `scores` becomes the softmax of `scale` times its first i + 1 scores, and
/// zeros after them. What stands after them is not read. A row with NaN or +inf among them becomes
/// NaN there, and so does one of nothing but -inf.
inline void causal_softmax_pass(float* scores, std::size_t length, float scale,
                                InstructionSet set = best_instruction_set()) noexcept {
  dispatch<CausalSoftmaxLoops>(set, [&](auto loops) { loops.forward(scores, length, scale); });
}

/// In place: `gradients` for the shares that causal_softmax_pass gave become those for the scores
/// it took, zeros where those were not read.
inline void causal_softmax_gradient_pass(const float* shares, float* gradients, std::size_t length,
                                         float scale,
                                         InstructionSet set = best_instruction_set()) noexcept {
  dispatch<CausalSoftmaxLoops>(
      set, [&](auto loops) { loops.backward(shares, gradients, length, scale); });
}

}  // namespace lockstep
