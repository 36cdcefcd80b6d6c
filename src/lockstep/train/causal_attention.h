// Attention of every position to itself and those before it, for short sequences and any model.
// LibTorch 2.11's CPU kernel computes block by block, for long sequences whose scores do not fit
// into memory. Whole matrix products with a softmax between them (kernels/causal_softmax_pass.h)
// take two thirds of its time at 128 and 256 positions, forward and backward (heads of size 32, one
// core of Neoverse V1), three quarters at 64, and as much at 32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// Up to here the scores are kept whole: length^2 floats for each head of each sequence, which
/// backward needs. For 256 positions and heads of size 64 that is four times as much as the
/// queries.
constexpr std::int64_t kLongestCausalAttention = 256;

/// Whether causal_attention supports `parts`, of (batch, length, 3 width): on the CPU, in float32
/// or bfloat16, not empty, at most kLongestCausalAttention positions. For others, use attention()
/// (attention.h).
[[nodiscard]] bool has_causal_attention(const at::Tensor& parts);

/// `parts` is (batch, length, 3 width): query, key and value of each position side by side, and in
/// each of them the heads side by side. Returns (batch, length, width), of the same type: what
/// scaled_dot_product_attention(..., is_causal) gives, within a few units in the last place, not
/// bitwise equal. Computed in float32, under autocast too; autograd knows its gradient, and that
/// gradient's. The bits do not depend on the number of threads, nor those of a position on finite
/// numbers at later ones. Throws UsageError for what has_causal_attention refuses, and for a width
/// that is not 3 × heads × head size.
[[nodiscard]] at::Tensor causal_attention(const at::Tensor& parts, std::int64_t heads);

}  // namespace lockstep
