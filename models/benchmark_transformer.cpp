#include "models/benchmark_transformer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "models/affine_internal.h"

namespace lockstep::models {
namespace {

const BenchmarkTransformerOptions& checked(const BenchmarkTransformerOptions& o) {
  if (std::min({o.vocabulary, o.positions, o.width, o.heads, o.hidden, o.layers}) < 1) {
    throw UsageError(
        fmt::format("Invalid transformer: vocabulary {}, positions {}, width {}, heads {}, hidden "
                    "{}, layers {}. All must be above 0.",
                    o.vocabulary, o.positions, o.width, o.heads, o.hidden, o.layers));
  }
  if (o.width % o.heads != 0) {
    throw UsageError(fmt::format(
        "The width {} is not a multiple of the {} heads: give such a width.", o.width, o.heads));
  }
  return o;
}

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const BenchmarkTransformerOptions& options)
    : heads_(options.heads),
      dropout_(options.dropout),
      in_proj_weight_(
          register_parameter("in_proj_weight", torch::empty({3 * options.width, options.width}))),
      in_proj_bias_(register_parameter("in_proj_bias", torch::zeros({3 * options.width}))),
      out_proj_(register_module("out_proj", torch::nn::Linear(options.width, options.width))) {
  torch::nn::init::xavier_uniform_(in_proj_weight_);
  torch::nn::init::zeros_(out_proj_->bias);
}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x) {
  const auto batch = x.size(0);
  const auto length = x.size(1);
  const auto width = x.size(2);
  const auto parts = torch::linear(x, in_proj_weight_, in_proj_bias_).chunk(3, /*dim=*/2);
  const auto heads_of = [&](const at::Tensor& part) {
    return part.view({batch, length, heads_, width / heads_}).transpose(1, 2);
  };
  const auto mixed =
      at::scaled_dot_product_attention(heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]),
                                       {}, is_training() ? dropout_ : 0.0);
  return affine(out_proj_, mixed.transpose(1, 2).reshape({batch, length, width}));
}

EncoderLayerImpl::EncoderLayerImpl(const BenchmarkTransformerOptions& options)
    : dropout_(options.dropout),
      attention_(register_module("self_attn", SelfAttention(options))),
      linear1_(register_module("linear1", torch::nn::Linear(options.width, options.hidden))),
      linear2_(register_module("linear2", torch::nn::Linear(options.hidden, options.width))),
      norm1_(register_module("norm1", norm(options.width))),
      norm2_(register_module("norm2", norm(options.width))) {}

at::Tensor EncoderLayerImpl::forward(const at::Tensor& input) {
  const auto drop = [this](const at::Tensor& x) {
    return torch::dropout(x, dropout_, is_training());
  };
  const auto x = norm1_(input + drop(attention_(input)));
  return norm2_(x + drop(affine(linear2_, drop(torch::gelu(affine(linear1_, x))))));
}

BenchmarkTransformerImpl::BenchmarkTransformerImpl(const BenchmarkTransformerOptions& options)
    : options_(checked(options)),
      embedding_(
          register_module("embedding", torch::nn::Embedding(options.vocabulary, options.width))),
      positions_(
          register_module("positions", torch::nn::Embedding(options.positions, options.width))),
      head_(nullptr) {
  torch::nn::ModuleList layers;
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.emplace_back(options);
    layers->push_back(layers_.back());
  }
  auto encoder = std::make_shared<torch::nn::Module>();  // only for the names of parameters
  encoder->register_module("layers", layers);
  register_module("encoder", encoder);
  head_ = register_module(
      "head",
      torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
}

at::Tensor BenchmarkTransformerImpl::forward(const at::Tensor& tokens) {
  const auto length = tokens.size(1);
  if (length > options_.positions) {
    throw UsageError(fmt::format(
        "A sequence of {} tokens is longer than the {} positions: give shorter sequences.", length,
        options_.positions));
  }
  // Two statements: the compiler chooses the order of a sum's operands, and gradients arrive in the
  // reverse order of the operators.
  auto x = embedding_(tokens);
  x = x + positions_(torch::arange(length, tokens.options()));
  for (auto& layer : layers_) x = unit(layer)(x);
  return head_(x);
}

}  // namespace lockstep::models
