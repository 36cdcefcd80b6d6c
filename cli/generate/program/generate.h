// Generates text for `lockstep generate`.
#pragma once

#include <functional>
#include <ostream>

#include "cli/generate/program/trained_gpt.h"

namespace lockstep::cli {

enum class GenerationEnd {
  enough,   // the requested number of tokens
  of_text,  // the model generated its end-of-text token
  stopped,  // wants_more() returned false
};

/// Receives the text, and decides when to stop.
struct GenerationView {
  std::function<void(std::string_view piece)> show;  // called with the prompt, then per token
  std::function<bool()> wants_more;                  // called before each token
};

struct GenerationReport {
  GenerationEnd end = GenerationEnd::enough;
  std::int64_t num_tokens = 0;
  double seconds = 0;
};

/// Shows the prompt and generates the text that follows. Throws UsageError when the tokenizer does
/// not accept the prompt or the model has diverged.
GenerationReport generate(const TrainedGpt& trained, const GenerateRequest& request,
                          const GenerationView& view);

}  // namespace lockstep::cli
