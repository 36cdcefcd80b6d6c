// GPT-2, from tiny to 1.5 billion parameters. Parameters have the names of OpenAI's published
// weights (wte.weight, h.0.attn.c_attn.weight, …). Matrices have the layout of torch::nn::Linear,
// (output, input): the transpose of the published ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "models/gpt_block.h"
#include "models/gpt_shape.h"

namespace lockstep::models {

class GptImpl : public torch::nn::Module {
 public:
  /// Initializes the weights as GPT-2: normal with standard deviation 0.02, divided by √(2 ·
  /// layers) for the output projections of blocks; biases zero, norms one. Uses LibTorch's random
  /// generator: seed it with torch::manual_seed. Throws UsageError for sizes below 1, and for a
  /// width that is not a multiple of the heads.
  explicit GptImpl(const GptOptions& options = {});

  /// Logits of shape (batch, length, vocabulary) for tokens of shape (batch, length): at each
  /// position, those of the next token. Throws UsageError for sequences longer than the context.
  at::Tensor forward(const at::Tensor& tokens);

  /// Logits of shape (batch, 1, vocabulary) of the token after `tokens`. `tokens` continue those of
  /// earlier calls with the same `cache`, and are added to it. For inference: without dropout and
  /// gradients. `cache` must have this model's number of layers and context, and be used with this
  /// model only. Throws UsageError when the context has no room for `tokens`.
  at::Tensor extend(const at::Tensor& tokens, GptCache& cache);

  [[nodiscard]] const GptOptions& options() const noexcept { return options_; }

 private:
  void initialise();
  [[nodiscard]] at::Tensor logits(const at::Tensor& x);

  GptOptions options_;
  torch::nn::Embedding wte_, wpe_;  // of tokens, and of positions
  std::vector<GptBlock> blocks_;
  torch::nn::LayerNorm ln_f_;
  torch::nn::Linear lm_head_;  // null when tied
};
TORCH_MODULE(Gpt);

}  // namespace lockstep::models
