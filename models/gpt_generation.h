// Text from a Gpt, token by token, so that it can be shown as it comes:
//
//   GptGeneration generation(gpt, prompt, {.temperature = 0.8, .top_k = 40, .seed = 7});
//   for (int i = 0; i < 200; ++i) print(generation.next());
//
// A token costs a forward of length one: the places before it are remembered. Where the context is
// full, the last half of it is read again and the rest forgotten. A text is a function of weights,
// prompt, options and the number of threads; LibTorch's random generator is not touched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/gpt.h"
#include "models/gpt_cache.h"

namespace lockstep::models {

struct GenerationOptions {
  double temperature = 1;  // below 1: likely tokens become likelier; 0: always the likeliest
  std::int64_t top_k = 0;  // only this many of the likeliest tokens can come; 0: all
  std::uint64_t seed = 0;  // another text for each
};

/// The token that `place`, a number in [0, 1), falls on when the tokens that can come lie side by
/// side in the order of their numbers, each as wide as it is likely. Of equal logits the first
/// counts as the higher. Pure. Throws UsageError when a score is NaN, or infinite upwards.
[[nodiscard]] std::int64_t choose_token(std::span<const float> logits,
                                        const GenerationOptions& options, double place);

class GptGeneration {
 public:
  /// Goes on from `prompt`; from the end of one that is longer than the context. Throws UsageError
  /// for an empty prompt, a token beyond the vocabulary, a negative temperature or top_k.
  GptGeneration(Gpt net, std::span<const std::int64_t> prompt, const GenerationOptions& options);

  /// Reads what has not been read, the prompt or the token before, and gives the next token. Throws
  /// as choose_token.
  [[nodiscard]] std::int64_t next();

  /// How many tokens have come.
  [[nodiscard]] std::int64_t num_tokens() const noexcept { return num_tokens_; }

 private:
  [[nodiscard]] at::Tensor read_on();

  Gpt net_;  // shared: the caller's own
  GenerationOptions options_;
  GptCache cache_;
  std::vector<std::int64_t> window_;  // the tokens in cache_, then those still to be read
  std::int64_t num_tokens_ = 0;
};

}  // namespace lockstep::models
