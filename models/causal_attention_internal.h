// Attention of every place to itself and those before it, for sequences that are short. LibTorch
// 2.11's CPU kernel goes block by block, for long ones whose scores fit in no memory. Whole matrix
// products with a softmax in between take two thirds of its time at 128 and 256 places, forward and
// backward (heads of size 32, one core of Neoverse V1), three quarters at 64, and as much at 32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models {

/// Up to here the scores are kept whole: length^2 floats for each head of each sequence, which
/// backward needs. For 256 places and heads of size 64 that is four times as much as the queries.
constexpr std::int64_t kLongestCausalAttention = 256;

/// Whether causal_attention takes `parts`: on the CPU, in float32 or bfloat16, short enough.
[[nodiscard]] bool has_causal_attention(const at::Tensor& parts);

/// `parts` is (batch, length, 3 width): of each place query, key and value side by side, each heads
/// side by side. Returns (batch, length, width), of the same type: what
/// scaled_dot_product_attention(..., is_causal) gives, within a few units in the last place, not
/// bit for bit. Computed in float32, under autocast too. The bits do not depend on the number of
/// threads, nor those of a place on finite numbers at later ones.
[[nodiscard]] at::Tensor causal_attention(const at::Tensor& parts, std::int64_t heads);

}  // namespace lockstep::models
