// A GPT as a run has left it: the model with the weights of one of its checkpoints, and the
// tokenizer that its text was made into tokens with.
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
  bool is_best = false;         // it is kept as the best
};

/// Loads the checkpoint that was asked for, once every byte of it is found to be as it was written.
/// Throws UsageError when there is no such checkpoint, when it does not fit the run's
/// configuration, or the tokenizer is not there any more.
[[nodiscard]] TrainedGpt load_trained_gpt(const GenerateRequest& request);

}  // namespace lockstep::cli
