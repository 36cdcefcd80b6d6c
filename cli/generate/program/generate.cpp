#include "cli/generate/program/generate.h"

#include <torch/torch.h>

#include <chrono>

#include "models/gpt_generation.h"

namespace lockstep::cli {

GenerationReport generate(const TrainedGpt& trained, const GenerateRequest& request,
                          const GenerationView& view) {
  std::vector<Token> tokens;
  const auto tokenizer = trained.tokenizer->clone();
  tokenizer->encode(request.prompt, tokens);
  const std::vector<std::int64_t> prompt(tokens.begin(), tokens.end());
  models::GptGeneration generation(trained.net, prompt,
                                   {.temperature = request.temperature,
                                    .top_k = request.top_k,
                                    .seed = static_cast<std::uint64_t>(request.seed),
                                    .vocabulary = trained.tokenizer->vocabulary_size()});

  GenerationReport report;
  view.show(request.prompt);
  const auto begin = std::chrono::steady_clock::now();
  while (report.num_tokens < request.num_tokens) {
    if (!view.wants_more()) {
      report.end = GenerationEnd::stopped;
      break;
    }
    const auto token = static_cast<Token>(generation.next());
    ++report.num_tokens;
    if (token == tokenizer->end_of_text()) {
      report.end = GenerationEnd::of_text;
      break;
    }
    view.show(tokenizer->decode({&token, 1}));
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  report.seconds = spent.count();
  return report;
}

}  // namespace lockstep::cli
