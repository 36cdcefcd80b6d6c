// The work of `lockstep generate`.
#pragma once

#include <functional>
#include <ostream>

#include "cli/generate/program/trained_gpt.h"

namespace lockstep::cli {

enum class GenerationEnd {
  enough,   // as many tokens as were asked for
  of_text,  // the model has ended its text
  stopped,  // somebody wanted no more
};

/// What to write text with, and when to stop.
struct GenerationView {
  std::function<void(std::string_view piece)> show;  // called for the prompt, then for each token
  std::function<bool()> wants_more;                  // asked before each token
};

struct GenerationReport {
  GenerationEnd end = GenerationEnd::enough;
  std::int64_t num_tokens = 0;
  double seconds = 0;
};

/// Shows the prompt and what follows it. Throws UsageError when the tokenizer does not take the
/// prompt or the model has diverged.
GenerationReport generate(const TrainedGpt& trained, const GenerateRequest& request,
                          const GenerationView& view);

}  // namespace lockstep::cli
