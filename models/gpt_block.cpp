#include "models/gpt_block.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "models/affine_internal.h"

namespace lockstep::models {
namespace {

const GptBlockOptions& checked(const GptBlockOptions& options) {
  if (options.heads < 1 || options.width < 1 || options.width % options.heads != 0) {
    throw UsageError(fmt::format(
        "A width of {} does not split over {} heads: give a width that is a multiple of the heads.",
        options.width, options.heads));
  }
  return options;
}

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

GptAttentionImpl::GptAttentionImpl(const GptBlockOptions& options)
    : options_(checked(options)),
      c_attn_(register_module("c_attn", torch::nn::Linear(options.width, 3 * options.width))),
      c_proj_(register_module("c_proj", torch::nn::Linear(options.width, options.width))) {}

at::Tensor GptAttentionImpl::forward(const at::Tensor& x) {
  const auto batch = x.size(0);
  const auto length = x.size(1);
  const auto parts = affine(c_attn_, x).chunk(3, /*dim=*/2);
  const auto heads_of = [&](const at::Tensor& part) {
    return part.view({batch, length, options_.heads, options_.width / options_.heads})
        .transpose(1, 2);
  };
  const double dropout = is_training() ? options_.dropout : 0.0;
  const auto mixed = at::scaled_dot_product_attention(
      heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]), {}, dropout, /*is_causal=*/true);
  const auto joined = mixed.transpose(1, 2).reshape({batch, length, options_.width});
  return torch::dropout(affine(c_proj_, joined), options_.dropout, is_training());
}

GptMlpImpl::GptMlpImpl(const GptBlockOptions& options)
    : dropout_(options.dropout),
      c_fc_(register_module("c_fc", torch::nn::Linear(options.width, 4 * options.width))),
      c_proj_(register_module("c_proj", torch::nn::Linear(4 * options.width, options.width))) {}

at::Tensor GptMlpImpl::forward(const at::Tensor& x) {
  return torch::dropout(affine(c_proj_, torch::gelu(affine(c_fc_, x), "tanh")), dropout_,
                        is_training());
}

GptBlockImpl::GptBlockImpl(const GptBlockOptions& options)
    : ln_1_(register_module("ln_1", norm(options.width))),
      attn_(register_module("attn", GptAttention(options))),
      ln_2_(register_module("ln_2", norm(options.width))),
      mlp_(register_module("mlp", GptMlp(options))) {}

at::Tensor GptBlockImpl::forward(const at::Tensor& x) {
  const auto attended = x + attn_(ln_1_(x));
  return attended + mlp_(ln_2_(attended));
}

}  // namespace lockstep::models
