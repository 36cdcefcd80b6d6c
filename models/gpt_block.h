// One block of GPT-2: x + attention(norm(x)), then that + mlp(norm(that)). Modules are named as in
// the weights that OpenAI published: ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>

#include "lockstep/train/unit.h"
#include "models/gpt_cache.h"
#include "models/gpt_shape.h"

namespace lockstep::models {

struct GptBlockOptions {
  std::int64_t width = 768;
  std::int64_t heads = 12;
  double dropout = 0;  // of attention, and of what is added to x
  GptKernels kernels = GptKernels::own;
};

/// Attention of every place to itself and those before it.
class GptAttentionImpl : public torch::nn::Module {
 public:
  explicit GptAttentionImpl(const GptBlockOptions& options);
  at::Tensor forward(const at::Tensor& x);
  /// The same for places that follow those of `past`, without dropout.
  at::Tensor extend(const at::Tensor& x, KeyValues& past);

 private:
  // Of what c_attn gives: query, key and value, each (batch, heads, length, head size).
  [[nodiscard]] std::array<at::Tensor, 3> heads_of(const at::Tensor& parts);
  [[nodiscard]] at::Tensor joined(const at::Tensor& mixed);

  GptBlockOptions options_;
  torch::nn::Linear c_attn_, c_proj_;
};
TORCH_MODULE(GptAttention);

/// Four times as wide inside, with GELU as GPT-2 computes it (by tanh).
class GptMlpImpl : public torch::nn::Module {
 public:
  explicit GptMlpImpl(const GptBlockOptions& options);
  at::Tensor forward(const at::Tensor& x);
  /// Without dropout.
  at::Tensor extend(const at::Tensor& x);

 private:
  GptBlockOptions options_;
  torch::nn::Linear c_fc_, c_proj_;
};
TORCH_MODULE(GptMlp);

/// A unit: recompute and the like can be chosen for it from outside.
class GptBlockImpl : public torch::nn::Module, public Unit {
 public:
  /// Throws UsageError when the width does not split over the heads.
  explicit GptBlockImpl(const GptBlockOptions& options);
  /// (batch, length, width) to the same.
  at::Tensor forward(const at::Tensor& x);
  /// The same for places that follow those of `past`, which they are added to. Without dropout:
  /// for use, not for training.
  at::Tensor extend(const at::Tensor& x, KeyValues& past);

 private:
  torch::nn::LayerNorm ln_1_;
  GptAttention attn_;
  torch::nn::LayerNorm ln_2_;
  GptMlp mlp_;
};
TORCH_MODULE(GptBlock);

}  // namespace lockstep::models
