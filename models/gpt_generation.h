// Generates text with a Gpt, token by token:
//
//   GptGeneration generation(gpt, prompt, {.temperature = 0.8, .top_k = 40, .seed = 7});
//   for (int i = 0; i < 200; ++i) print(generation.next());
//
// A token costs a forward pass of length one, by a key-value cache. When the context is full, its
// second half is read again and its first half discarded. The text depends only on weights, prompt,
// options and the number of threads; LibTorch's random generator is not used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/gpt.h"
#include "models/gpt_cache.h"

namespace lockstep::models {

struct GenerationOptions {
  double temperature = 1;  // divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;  // sample from this many of the most likely tokens; 0: from all
  std::uint64_t seed = 0;  // of the random choice
  // Choose among the first tokens only: a model may have more rows than its tokenizer has tokens.
  // 0: among all.
  std::int64_t vocabulary = 0;
};

/// The token whose interval contains `number`, which is in [0, 1). The intervals of the tokens to
/// sample from divide [0, 1) in ascending order of tokens; each is as long as the token's
/// probability. Of equal logits the first counts as the higher. Pure. Throws UsageError when a
/// logit is NaN or positive infinity.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits,
                                        const GenerationOptions& options, double number);

class GptGeneration {
 public:
  /// Continues `prompt`; of a prompt that is longer than the context, only its end. Throws
  /// UsageError for an empty prompt, a token outside the vocabulary, a negative temperature or
  /// top_k.
  GptGeneration(Gpt net, std::span<const std::int64_t> prompt, const GenerationOptions& options);

  /// Reads the prompt or the previous token and returns the next token. Throws as choose_token.
  [[nodiscard]] std::int64_t next();

  /// The number of generated tokens.
  [[nodiscard]] std::int64_t num_tokens() const noexcept { return num_tokens_; }

 private:
  [[nodiscard]] at::Tensor read_on();

  Gpt net_;  // shares the caller's module
  GenerationOptions options_;
  GptCache cache_;
  std::vector<std::int64_t> window_;  // the tokens in cache_, then those that are not yet read
  std::int64_t num_tokens_ = 0;
};

}  // namespace lockstep::models
