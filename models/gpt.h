// GPT-2, from tiny to 1.5 billion parameters. Parameters are named as in the weights that OpenAI
// published (wte.weight, h.0.attn.c_attn.weight, …); matrices are stored as Linear stores them,
// (output, input), which is the published ones transposed.
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
  /// Weights begin as GPT-2's: normal with deviation 0.02, those that write into x smaller by
  /// √(2 · layers), biases zero, norms one. Random numbers are LibTorch's: seed with
  /// torch::manual_seed. Throws UsageError for sizes below 1, and a width that does not split over
  /// the heads.
  explicit GptImpl(const GptOptions& options = {});

  /// Logits of shape (batch, length, vocabulary) for tokens of shape (batch, length): at each
  /// place, of the token that follows. Throws UsageError for sequences longer than the context.
  at::Tensor forward(const at::Tensor& tokens);

  /// Logits of shape (batch, 1, vocabulary) of the token that follows `tokens`, which follow those
  /// that `cache` has of earlier calls and are added to it. Without dropout and gradients: for use,
  /// not for training. `cache` is made with this model's layers and context, and used with it
  /// alone. Throws UsageError for more tokens than the context has room for.
  at::Tensor extend(const at::Tensor& tokens, GptCache& cache);

  [[nodiscard]] const GptOptions& options() const noexcept { return options_; }

 private:
  void initialise();
  [[nodiscard]] at::Tensor logits(const at::Tensor& x);

  GptOptions options_;
  torch::nn::Embedding wte_, wpe_;  // of tokens, and of places
  std::vector<GptBlock> blocks_;
  torch::nn::LayerNorm ln_f_;
  torch::nn::Linear lm_head_;  // null when tied
};
TORCH_MODULE(Gpt);

}  // namespace lockstep::models
