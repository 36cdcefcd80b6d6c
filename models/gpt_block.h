// One block of GPT-2: x = x + attention(norm(x)); x = x + mlp(norm(x)). Modules have the names of
// OpenAI's published weights: ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj.
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
  double dropout = 0;  // of attention weights and of both residual branches
  GptKernels kernels = GptKernels::own;
};

/// Causal attention: each position attends to itself and to earlier positions.
class GptAttentionImpl : public torch::nn::Module {
 public:
  explicit GptAttentionImpl(const GptBlockOptions& options);
  at::Tensor forward(const at::Tensor& x);
  /// The same for positions that continue `past`, without dropout.
  at::Tensor extend(const at::Tensor& x, KeyValues& past);

 private:
  // Query, key and value from the output of c_attn, each (batch, heads, length, head size).
  [[nodiscard]] std::array<at::Tensor, 3> heads_of(const at::Tensor& parts);
  [[nodiscard]] at::Tensor joined(const at::Tensor& mixed);

  GptBlockOptions options_;
  torch::nn::Linear c_attn_, c_proj_;
};
TORCH_MODULE(GptAttention);

/// Two linear layers with a hidden width of 4 · width, and the tanh form of GELU, as in GPT-2.
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

/// A unit (train/unit.h): the caller can wrap it, for example with activation checkpointing.
class GptBlockImpl : public torch::nn::Module, public Unit {
 public:
  /// Throws UsageError when the width is not a multiple of the heads.
  explicit GptBlockImpl(const GptBlockOptions& options);
  /// Input and output have shape (batch, length, width).
  at::Tensor forward(const at::Tensor& x);
  /// The same for positions that continue `past`, to which they are added. For inference: without
  /// dropout.
  at::Tensor extend(const at::Tensor& x, KeyValues& past);

 private:
  torch::nn::LayerNorm ln_1_;
  GptAttention attn_;
  torch::nn::LayerNorm ln_2_;
  GptMlp mlp_;
};
TORCH_MODULE(GptBlock);

}  // namespace lockstep::models
