// generated_tokens COUNT LENGTH…: for each LENGTH, prints one line with the COUNT most likely
// tokens of a small GPT with made-up weights after LENGTH made-up tokens.
#include <torch/torch.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "models/gpt_generation.h"
#include "models/made_up_numbers.h"

int main(int num_arguments, char** arguments) {
  if (num_arguments < 3) {
    std::fputs("usage: generated_tokens COUNT LENGTH…\n", stderr);
    return 2;
  }
  using namespace lockstep::models;
  const GptOptions options{.vocabulary = 97,
                           .context = 16,
                           .layers = 2,
                           .heads = 3,
                           .width = 48,
                           .head = GptHead::separate};
  Gpt net(options);
  fill(*net);
  for (int i = 2; i < num_arguments; ++i) {
    const auto prompt = made_up_tokens(1, std::atoll(arguments[i]), options.vocabulary);
    GptGeneration generation(
        net, {prompt.data_ptr<std::int64_t>(), static_cast<std::size_t>(prompt.numel())},
        {.temperature = 0});
    for (auto count = std::atoll(arguments[1]); count > 0; --count) {
      std::printf("%" PRId64 " ", generation.next());
    }
    std::printf("\n");
  }
  return 0;
}
