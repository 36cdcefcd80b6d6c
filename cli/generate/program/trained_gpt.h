// The GPT of a run: the model with the weights of one of the run's checkpoints, and the run's
// tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/generate/request.h"
#include "lockstep/tokenizers/tokenizer.h"
#include "models/gpt.h"

namespace lockstep::cli {

struct TrainedGpt {
  models::Gpt net;
  std::unique_ptr<Tokenizer> tokenizer;
  std::int64_t step = 0;        // of the checkpoint
  std::string checkpoint = {};  // its folder
  bool is_best = false;         // it is the kept checkpoint best
};

/// Verifies every byte of the requested checkpoint and loads it. Throws UsageError when it does not
/// exist or does not fit the run's configuration, and when the tokenizer is missing.
[[nodiscard]] TrainedGpt load_trained_gpt(const GenerateRequest& request);

}  // namespace lockstep::cli
