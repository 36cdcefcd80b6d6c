// Causal self-attention for short sequences, for any model. LibTorch 2.11's CPU kernel computes
// block by block, for long sequences whose attention scores do not fit into memory. Whole matrix
// products with a softmax between them (kernels/causal_softmax_pass.h) take two thirds of its time
// at 128 and 256 positions, forward and backward (heads of size 32, one core of Neoverse V1), three
// quarters at 64, and the same time at 32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// The longest supported sequence. The attention weights are kept for backward: length^2 floats per
/// head and sequence. For 256 positions and heads of size 64 that is four times the memory of the
/// queries.
constexpr std::int64_t kLongestCausalAttention = 256;

/// Whether causal_attention() supports `parts`, of shape (batch, length, 3 width): on the CPU, in
/// float32 or bfloat16, not empty, with at most kLongestCausalAttention positions. For other
/// tensors use attention() (attention.h).
[[nodiscard]] bool has_causal_attention(const at::Tensor& parts);

/// Causal attention of `parts`, of shape (batch, length, 3 width): the query, key and value of each
/// position side by side, and in each of them the heads side by side.
/// Returns (batch, length, width) of the same dtype. The result is that of
/// scaled_dot_product_attention(..., is_causal) within a few units in the last place, not bitwise
/// equal. It is computed in float32, also under autocast, and is differentiable twice. It is
/// bit-identical for any number of threads, and the result of a position does not depend on finite
/// values at later positions.
/// Throws UsageError for tensors that has_causal_attention() rejects, and for a width that is not a
/// multiple of `heads`.
[[nodiscard]] at::Tensor causal_attention(const at::Tensor& parts, std::int64_t heads);

}  // namespace lockstep
