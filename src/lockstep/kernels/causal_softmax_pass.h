// The softmax of causal attention and its gradient as loops over memory. A matrix has `length` rows
// of `length` floats. Row i holds the attention scores of positions 0 to i, to which position i
// attends. train/causal_attention.h is the version for tensors.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dispatch.h"

namespace lockstep {

template <InstructionSet>
struct CausalSoftmaxLoops {
  static void forward(float* scores, std::size_t length, float scale) noexcept;
  static void backward(const float* probabilities, float* gradients, std::size_t length,
                       float scale) noexcept;
};

/// In place: row i of `scores` becomes the softmax of `scale` times its first i + 1 scores,
/// followed by zeros. The elements after the first i + 1 are not read. If the first i + 1 scores
/// contain NaN or +inf, or are all -inf, they become NaN. `scores` has length² elements.
inline void causal_softmax_pass(std::span<float> scores, std::size_t length, float scale,
                                InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(scores.size() == length * length, "causal_softmax_pass: not a square matrix");
  dispatch<CausalSoftmaxLoops>(set,
                               [&](auto loops) { loops.forward(scores.data(), length, scale); });
}

/// In place: turns the gradients of the probabilities, which are the result of causal_softmax_pass,
/// into the gradients of its scores; they are zero where the scores are not read. Both spans have
/// length² elements and do not overlap.
inline void causal_softmax_gradient_pass(std::span<const float> probabilities,
                                         std::span<float> gradients, std::size_t length,
                                         float scale,
                                         InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(
      probabilities.size() == length * length && gradients.size() == probabilities.size(),
      "causal_softmax_gradient_pass: not two square matrices");
  dispatch<CausalSoftmaxLoops>(set, [&](auto loops) {
    loops.backward(probabilities.data(), gradients.data(), length, scale);
  });
}

}  // namespace lockstep
