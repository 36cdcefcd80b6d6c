// Sizes: B batch, T length, H heads, D head size. Queries, keys and values are packed as (3, B, H,
// T, D); as matrices each is (BH, T, D). Attention scores, attention weights and their gradients
// are (BH, T, T): one row per query position, one column per key position.
#include "lockstep/train/causal_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/kernels/causal_softmax_pass.h"
#include "lockstep/train/autocast.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor copy_of(const at::Tensor& values, at::ScalarType dtype) {
  return at::empty(values.sizes(), values.options().dtype(dtype)).copy_(values);
}

// (B, T, 3 H D) as (3, B, H, T, D), without copying.
at::Tensor by_heads(const at::Tensor& parts, std::int64_t heads) {
  const auto head_size = parts.size(2) / (3 * heads);
  return parts.view({parts.size(0), parts.size(1), 3, heads, head_size}).permute({2, 0, 3, 1, 4});
}

// Query, key or value of `packed`, as matrices.
at::Tensor matrices(const at::Tensor& packed, std::int64_t which) {
  return packed[which].flatten(0, 1);
}

float scale_of(const at::Tensor& packed) {
  return 1.0F / std::sqrt(static_cast<float>(packed.size(4)));
}

at::Tensor first_elements(const at::Tensor& squares) { return squares.select(2, 0).select(1, 0); }

// Calls pass(first element of `written`, of `read`) for every pair of matrices, on LibTorch's
// intra-op threads: an iterator over the first elements distributes the work.
template <typename Pass>
void for_each_matrix(const at::Tensor& written, const at::Tensor& read, const Pass& pass) {
  const auto outputs = first_elements(written), inputs = first_elements(read);
  const auto elements = written.size(1) * written.size(2);
  at::TensorIteratorConfig().add_output(outputs).add_const_input(inputs).build().for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t count, std::int64_t rows) {
        TORCH_INTERNAL_ASSERT(rows == 1);  // one dimension
        for (std::int64_t i = 0; i < count; ++i) {
          pass(reinterpret_cast<float*>(data[0] + i * strides[0]),
               reinterpret_cast<const float*>(data[1] + i * strides[1]));
        }
      },
      std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / elements));
}

void make_weights(const at::Tensor& scores, float scale) {
  const auto length = static_cast<std::size_t>(scores.size(1));
  for_each_matrix(scores, scores, [=](float* matrix, const float*) {
    causal_softmax_pass({matrix, length * length}, length, scale);
  });
}

void make_gradients_of_scores(const at::Tensor& of_weights, const at::Tensor& weights,
                              float scale) {
  const auto length = static_cast<std::size_t>(weights.size(1));
  for_each_matrix(of_weights, weights, [=](float* gradients, const float* matrix) {
    causal_softmax_gradient_pass({matrix, length * length}, {gradients, length * length}, length,
                                 scale);
  });
}

// The same with LibTorch's operators, which are differentiable twice.
at::Tensor twice_differentiable(const at::Tensor& parts, std::int64_t heads) {
  const auto packed = by_heads(parts.to(at::kFloat), heads);
  const auto scores = at::matmul(packed[0], packed[1].transpose(2, 3)) * scale_of(packed);
  const auto later = at::ones_like(scores, at::kBool).triu(1);
  const auto weights = scores.masked_fill(later, -INFINITY).softmax(-1);
  return at::matmul(weights, packed[2]).transpose(1, 2).flatten(2).to(parts.scalar_type());
}

struct CausalAttention : public torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& parts, std::int64_t heads) {
    const Autocast off(at::kFloat);
    const auto packed = copy_of(by_heads(parts, heads), at::kFloat);
    const auto weights = at::bmm(matrices(packed, 0), matrices(packed, 1).transpose(1, 2));
    make_weights(weights, scale_of(packed));
    context->save_for_backward({parts, packed, weights});
    context->saved_data["heads"] = heads;
    const auto mixed = at::bmm(weights, matrices(packed, 2)).view(packed.sizes().slice(1));
    return copy_of(mixed.transpose(1, 2), parts.scalar_type()).flatten(2);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Autocast off(at::kFloat);
    const auto saved = context->get_saved_variables();
    const auto& [parts, packed, weights] = std::tie(saved[0], saved[1], saved[2]);
    const auto heads = context->saved_data["heads"].toInt();
    if (at::GradMode::is_enabled()) {  // this gradient is itself differentiated
      return {torch::autograd::grad({twice_differentiable(parts, heads)}, {parts}, gradients,
                                    /*retain_graph=*/true, /*create_graph=*/true)[0],
              {}};
    }
    const auto scattered = gradients[0].unflatten(2, {heads, packed.size(4)}).transpose(1, 2);
    const auto of_mixed = copy_of(scattered, at::kFloat).flatten(0, 1);
    const auto of_scores = at::bmm(of_mixed, matrices(packed, 2).transpose(1, 2));
    make_gradients_of_scores(of_scores, weights, scale_of(packed));
    const auto of_packed = at::empty_like(packed);
    auto of_query = matrices(of_packed, 0), of_key = matrices(of_packed, 1),
         of_value = matrices(of_packed, 2);
    at::bmm_out(of_query, of_scores, matrices(packed, 1));
    at::bmm_out(of_key, of_scores.transpose(1, 2), matrices(packed, 0));
    at::bmm_out(of_value, weights.transpose(1, 2), of_mixed);
    return {copy_of(of_packed.permute({1, 3, 0, 2, 4}), parts.scalar_type()).flatten(2), {}};
  }
};

}  // namespace

bool has_causal_attention(const at::Tensor& parts) {
  return parts.dim() == 3 && parts.is_cpu() &&
         (parts.scalar_type() == at::kFloat || parts.scalar_type() == at::kBFloat16) &&
         parts.numel() > 0 && parts.size(1) <= kLongestCausalAttention;
}

at::Tensor causal_attention(const at::Tensor& parts, std::int64_t heads) {
  if (!has_causal_attention(parts)) {
    throw UsageError(fmt::format(
        "causal_attention takes (batch, length, 3 width) on the CPU in float32 or bfloat16, not "
        "empty, of at most {} positions; got {} of shape ({}) on {}: use attention()",
        kLongestCausalAttention, c10::toString(parts.scalar_type()), fmt::join(parts.sizes(), ", "),
        parts.device().str()));
  }
  if (heads < 1 || parts.size(2) % (3 * heads) != 0) {
    throw UsageError(
        fmt::format("causal_attention: the last dimension is {}, expected 3 × {} heads × head size",
                    parts.size(2), heads));
  }
  return CausalAttention::apply(parts, heads);
}

}  // namespace lockstep
