#include "models/gpt_generation.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep::models {
namespace {

const GenerationOptions& checked(const GenerationOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    throw UsageError(
        fmt::format("The temperature is {}: give 0 or a number above 0.", options.temperature));
  }
  if (options.top_k < 0) {
    throw UsageError(
        fmt::format("top_k is {}: give a number of tokens, or 0 for all.", options.top_k));
  }
  return options;
}

void check_prompt(std::span<const std::int64_t> prompt, std::int64_t vocabulary) {
  if (prompt.empty()) throw UsageError("The prompt is empty: give one.");
  for (const auto token : prompt) {
    if (token < 0 || token >= vocabulary) {
      throw UsageError(fmt::format(
          "The prompt has token {}, but the model's vocabulary is {}: use the tokenizer "
          "that it was trained with.",
          token, vocabulary));
    }
  }
}

void check_logits(std::span<const float> logits) {
  const auto bad = [](float logit) {
    return std::isnan(logit) || (std::isinf(logit) && logit > 0);
  };
  const auto found = std::ranges::find_if(logits, bad);
  if (found == logits.end()) return;
  throw UsageError(
      fmt::format("The logit of token {} is {}: the model has diverged. Use an earlier "
                  "checkpoint, or train with a lower lr.",
                  found - logits.begin(), *found));
}

// The tokens to sample from, in ascending order.
std::vector<std::int64_t> candidates(std::span<const float> logits, std::int64_t top_k) {
  std::vector<std::int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (top_k == 0 || static_cast<std::size_t>(top_k) >= logits.size()) return tokens;
  const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::ranges::nth_element(tokens, tokens.begin() + top_k, [&](std::int64_t a, std::int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  tokens.resize(static_cast<std::size_t>(top_k));
  std::ranges::sort(tokens);
  return tokens;
}

}  // namespace

std::int64_t choose_token(std::span<const float> logits, const GenerationOptions& options,
                          double number) {
  check_logits(logits);
  const auto most_likely = std::ranges::max_element(logits);
  if (options.temperature == 0) return most_likely - logits.begin();
  const auto tokens = candidates(logits, options.top_k);
  std::vector<double> ends;  // the end of each token's interval
  double sum = 0;
  for (const auto token : tokens) {
    const double lower = logits[static_cast<std::size_t>(token)] - double{*most_likely};
    sum += std::exp(lower / options.temperature);
    ends.push_back(sum);
  }
  const auto chosen = std::ranges::upper_bound(ends, number * sum);
  // number * sum may be rounded up to sum; then the last interval that is not empty has it.
  if (chosen == ends.end())
    return tokens[static_cast<std::size_t>(std::ranges::lower_bound(ends, sum) - ends.begin())];
  return tokens[static_cast<std::size_t>(chosen - ends.begin())];
}

GptGeneration::GptGeneration(Gpt net, std::span<const std::int64_t> prompt,
                             const GenerationOptions& options)
    : net_(std::move(net)),
      options_(checked(options)),
      cache_(net_->options().layers, net_->options().context) {
  check_prompt(prompt, net_->options().vocabulary);
  const auto context = static_cast<std::size_t>(net_->options().context);
  const auto end = prompt.last(std::min(prompt.size(), context));
  window_.assign(end.begin(), end.end());
}

std::int64_t GptGeneration::next() {
  const auto logits = read_on();
  const RandomKey key{.seed = options_.seed, .purpose = random_purpose("generate")};
  RandomStream stream(key, static_cast<std::uint64_t>(num_tokens_++), 0);
  const auto most = options_.vocabulary > 0 ? options_.vocabulary : logits.numel();
  const std::span row(logits.data_ptr<float>(),
                      static_cast<std::size_t>(std::min(most, logits.numel())));
  window_.push_back(choose_token(row, options_, stream.uniform()));
  return window_.back();
}

// Logits of the next token, as floats on the CPU.
at::Tensor GptGeneration::read_on() {
  const auto context = net_->options().context;
  if (std::ssize(window_) > context) {
    window_.erase(window_.begin(), window_.end() - std::max<std::int64_t>(1, context / 2));
    cache_.clear();
  }
  const auto unread = std::span(window_).subspan(static_cast<std::size_t>(cache_.length()));
  const auto device = net_->parameters().front().device();
  const auto input =
      torch::from_blob(unread.data(), {1, std::ssize(unread)}, torch::kLong).to(device);
  return net_->extend(input, cache_).to(torch::kCPU, torch::kFloat).contiguous();
}

}  // namespace lockstep::models
