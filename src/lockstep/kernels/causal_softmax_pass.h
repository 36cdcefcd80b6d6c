// The softmax of causal attention and its gradient as loops over memory. A matrix is `length` rows
// of `length` floats: row i has the scores of the positions that position i attends to, which are 0
// to i. train/causal_attention.h uses it for tensors.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/assert.h"
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
/// NaN there, and so does one of nothing but -inf. `scores` has length² elements.
inline void causal_softmax_pass(std::span<float> scores, std::size_t length, float scale,
                                InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(scores.size() == length * length, "causal_softmax_pass: not a square matrix");
  dispatch<CausalSoftmaxLoops>(set,
                               [&](auto loops) { loops.forward(scores.data(), length, scale); });
}

/// In place: `gradients` for the shares that causal_softmax_pass gave become those for the scores
/// it took, zeros where those were not read. Both have length² elements and do not overlap.
inline void causal_softmax_gradient_pass(std::span<const float> shares, std::span<float> gradients,
                                         std::size_t length, float scale,
                                         InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(shares.size() == length * length && gradients.size() == shares.size(),
                  "causal_softmax_gradient_pass: not two square matrices");
  dispatch<CausalSoftmaxLoops>(
      set, [&](auto loops) { loops.backward(shares.data(), gradients.data(), length, scale); });
}

}  // namespace lockstep
