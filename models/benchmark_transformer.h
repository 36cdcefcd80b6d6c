// The transformer of lockstep's benchmarks and of its comparison with Python: six post-norm encoder
// layers between a learned embedding and a head over GPT-2's vocabulary. These are the defaults;
// tests use smaller sizes. There is no mask: every position attends to every other, as in PyTorch's
// TransformerEncoder without a mask.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "lockstep/train/unit.h"

namespace lockstep::models {

struct BenchmarkTransformerOptions {
  std::int64_t vocabulary = 50257;
  std::int64_t positions = 512;  // the longest sequence
  std::int64_t width = 512;
  std::int64_t heads = 8;
  std::int64_t hidden = 2048;  // width between the two linear layers of a block
  std::int64_t layers = 6;
  double dropout = 0;  // at the same points as in PyTorch's TransformerEncoderLayer
};

/// Self-attention over all positions. Parameters have the names of PyTorch's MultiheadAttention.
class SelfAttentionImpl : public torch::nn::Module {
 public:
  explicit SelfAttentionImpl(const BenchmarkTransformerOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  std::int64_t heads_;
  double dropout_;
  at::Tensor in_proj_weight_, in_proj_bias_;  // query, key and value in one matrix
  torch::nn::Linear out_proj_;
};
TORCH_MODULE(SelfAttention);

/// x = norm(x + attention(x)); x = norm(x + linear(gelu(linear(x)))). A unit
/// (train/unit.h): the caller can wrap it, for example with activation checkpointing.
class EncoderLayerImpl : public torch::nn::Module, public Unit {
 public:
  explicit EncoderLayerImpl(const BenchmarkTransformerOptions& options);
  at::Tensor forward(const at::Tensor& input);

 private:
  double dropout_;
  SelfAttention attention_;
  torch::nn::Linear linear1_, linear2_;
  torch::nn::LayerNorm norm1_, norm2_;
};
TORCH_MODULE(EncoderLayer);

/// Parameters have the names and initial distributions of a Python module with the members
/// embedding, positions, encoder (a TransformerEncoder) and head.
class BenchmarkTransformerImpl : public torch::nn::Module {
 public:
  /// Throws UsageError when a size is below 1, or the width is not a multiple of the heads.
  explicit BenchmarkTransformerImpl(const BenchmarkTransformerOptions& options = {});

  /// Logits of shape (batch, length, vocabulary) for tokens of shape (batch, length).
  /// Throws UsageError for sequences longer than options.positions.
  at::Tensor forward(const at::Tensor& tokens);

 private:
  BenchmarkTransformerOptions options_;
  torch::nn::Embedding embedding_, positions_;
  std::vector<EncoderLayer> layers_;
  torch::nn::Linear head_;
};
TORCH_MODULE(BenchmarkTransformer);

}  // namespace lockstep::models
