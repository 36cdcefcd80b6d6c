#include "models/gpt.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

// The standard deviation of GPT-2's initial weights. (OpenAI's code has 0.01 for position
// embeddings; later implementations use 0.02 for these too.)
constexpr double kDeviation = 0.02;

const GptOptions& checked(const GptOptions& o) {
  if (std::min({o.vocabulary, o.context, o.layers, o.heads, o.width}) < 1) {
    throw UsageError(fmt::format(
        "Invalid GPT: vocabulary {}, context {}, layers {}, heads {}, width {}. All must be above "
        "0.",
        o.vocabulary, o.context, o.layers, o.heads, o.width));
  }
  return o;
}

void check_fits(std::int64_t length, std::int64_t context) {
  if (length > context) {
    throw UsageError(
        fmt::format("A sequence of {} tokens is longer than the context {}: give shorter ones.",
                    length, context));
  }
}

}  // namespace

GptImpl::GptImpl(const GptOptions& options)
    : options_(checked(options)),
      wte_(register_module("wte", torch::nn::Embedding(options.vocabulary, options.width))),
      wpe_(register_module("wpe", torch::nn::Embedding(options.context, options.width))),
      ln_f_(nullptr),
      lm_head_(nullptr) {
  torch::nn::ModuleList blocks;
  for (std::int64_t i = 0; i < options.layers; ++i) {
    blocks_.emplace_back(
        GptBlockOptions{options.width, options.heads, options.dropout, options.kernels});
    blocks->push_back(blocks_.back());
  }
  register_module("h", blocks);
  ln_f_ =
      register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
  if (options.head == GptHead::separate) {
    lm_head_ = register_module(
        "lm_head",
        torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
  }
  initialise();
}

void GptImpl::initialise() {
  const double smaller = kDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (auto& named : named_parameters()) {
    const std::string_view name = named.key();
    if (name.find("ln_") != std::string_view::npos)
      continue;  // norms keep their initial one and zero
    if (name.ends_with("bias")) {
      torch::nn::init::zeros_(named.value());
    } else {
      const bool is_output_projection = name.ends_with("c_proj.weight");
      torch::nn::init::normal_(named.value(), 0, is_output_projection ? smaller : kDeviation);
    }
  }
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  const auto length = tokens.size(1);
  check_fits(length, options_.context);
  auto x = wte_(tokens);  // a statement of its own: the order of a sum's operands is unspecified
  x = x + wpe_(torch::arange(length, tokens.options()));
  x = torch::dropout(x, options_.dropout, is_training());
  for (auto& block : blocks_) x = unit(block)(x);
  return logits(x);
}

at::Tensor GptImpl::extend(const at::Tensor& tokens, GptCache& cache) {
  const at::NoGradGuard no_gradients;
  const auto before = cache.length();
  const auto length = tokens.size(1);
  check_fits(before + length, options_.context);
  auto x = wte_(tokens);
  x = x + wpe_(torch::arange(before, before + length, tokens.options()));
  for (std::size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i]->extend(x, cache.block(i));
  return logits(x.narrow(1, length - 1, 1));
}

at::Tensor GptImpl::logits(const at::Tensor& x) {
  const auto last = ln_f_(x);
  return lm_head_.is_empty() ? torch::linear(last, wte_->weight) : lm_head_(last);
}

}  // namespace lockstep::models
