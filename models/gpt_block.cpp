#include "models/gpt_block.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/train/attention.h"
#include "lockstep/train/causal_attention.h"
#include "lockstep/train/gelu.h"
#include "models/affine_internal.h"

namespace lockstep::models {
namespace {

const GptBlockOptions& checked(const GptBlockOptions& options) {
  if (options.heads < 1 || options.width < 1 || options.width % options.heads != 0) {
    throw UsageError(
        fmt::format("The width {} is not a multiple of the {} heads: give such a width.",
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

std::array<at::Tensor, 3> GptAttentionImpl::heads_of(const at::Tensor& parts) {
  const auto three = parts.chunk(3, /*dim=*/2);
  const auto split = [&](const at::Tensor& part) {
    return part.view({part.size(0), part.size(1), options_.heads, options_.width / options_.heads})
        .transpose(1, 2);
  };
  return {split(three[0]), split(three[1]), split(three[2])};
}

at::Tensor GptAttentionImpl::joined(const at::Tensor& mixed) {
  const auto side_by_side =
      mixed.transpose(1, 2).reshape({mixed.size(0), mixed.size(2), options_.width});
  return affine(c_proj_, side_by_side);
}

at::Tensor GptAttentionImpl::forward(const at::Tensor& x) {
  const auto parts = affine(c_attn_, x);
  const double dropout = is_training() ? options_.dropout : 0.0;
  if (options_.kernels == GptKernels::own && dropout == 0 && has_causal_attention(parts)) {
    return affine(c_proj_, causal_attention(parts, options_.heads));
  }
  const auto [query, key, value] = heads_of(parts);
  const auto mixed = attention(query, key, value, {.dropout = dropout, .is_causal = true});
  return torch::dropout(joined(mixed), options_.dropout, is_training());
}

at::Tensor GptAttentionImpl::extend(const at::Tensor& x, KeyValues& past) {
  const auto before = past.length();
  const auto [query, key, value] = heads_of(affine(c_attn_, x));
  const auto [keys, values] = past.append(key, value);
  if (before == 0) return joined(attention(query, keys, values, {.is_causal = true}));
  AttentionOptions options;
  if (x.size(1) >
      1) {  // one position attends to all; of several, each to itself and to earlier ones
    options.mask = at::ones({x.size(1), keys.size(2)}, x.options().dtype(at::kBool)).tril(before);
  }
  return joined(attention(query, keys, values, options));
}

GptMlpImpl::GptMlpImpl(const GptBlockOptions& options)
    : options_(options),
      c_fc_(register_module("c_fc", torch::nn::Linear(options.width, 4 * options.width))),
      c_proj_(register_module("c_proj", torch::nn::Linear(4 * options.width, options.width))) {}

at::Tensor GptMlpImpl::forward(const at::Tensor& x) {
  return torch::dropout(extend(x), options_.dropout, is_training());
}

at::Tensor GptMlpImpl::extend(const at::Tensor& x) {
  const auto inner = affine(c_fc_, x);
  const bool own = options_.kernels == GptKernels::own;
  return affine(c_proj_, own ? gelu_by_tanh(inner) : at::gelu(inner, "tanh"));
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

at::Tensor GptBlockImpl::extend(const at::Tensor& x, KeyValues& past) {
  const auto attended = x + attn_->extend(ln_1_(x), past);
  return attended + mlp_->extend(ln_2_(attended));
}

}  // namespace lockstep::models
