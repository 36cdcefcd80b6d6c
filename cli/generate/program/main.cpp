// lockstep-generate: the part of `lockstep generate` that needs LibTorch. The lockstep command
// executes it; users do not.
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <string>
#include <vector>

#include "cli/generate/program/generate.h"
#include "cli/generate/program/terminal_text.h"
#include "cli/report.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/stop_signals.h"

namespace {

using namespace lockstep;
using namespace lockstep::cli;

// Below this number of parameters one thread is faster: more would mostly wait for each other.
constexpr std::int64_t kParametersWorthThreads = 10'000'000;

void say(const std::string& line) { std::cerr << line << '\n'; }

// Writes text that is safe for a terminal, or the unchanged bytes to a file or pipe; unbuffered.
class Output {
 public:
  void show(std::string_view piece) {
    if (is_terminal_) {
      std::cout << safe_.add(piece);
    } else {
      std::cout << piece;
    }
    std::cout.flush();
  }
  void end() { std::cout << safe_.end() << '\n' << std::flush; }

 private:
  bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  TerminalText safe_;
};

int run(const GenerateRequest& request) {
  const auto trained = load_trained_gpt(request);
  const auto size = models::num_parameters(trained.net->options());
  if (size < kParametersWorthThreads) torch::set_num_threads(1);
  const StopSignals signals;
  say(fmt::format("{}: step {}{}, {:.1f} M parameters; seed {}", request.run, trained.step,
                  trained.is_best ? " (best)" : "", static_cast<double>(size) / 1e6, request.seed));
  Output output;
  const auto report =
      generate(trained, request,
               {.show = [&](std::string_view piece) { output.show(piece); },
                .wants_more = [&] { return signals.received() == 0 && std::cout.good(); }});
  output.end();
  if (!std::cout) throw SystemError("cannot write the text", errno);
  say(fmt::format("{} tokens, {:.0f} tokens per second{}", report.num_tokens,
                  static_cast<double>(report.num_tokens) / report.seconds,
                  report.end == GenerationEnd::of_text   ? "; the model generated end of text"
                  : report.end == GenerationEnd::stopped ? "; stopped"
                                                         : ""));
  return report.end == GenerationEnd::stopped ? 128 + signals.received() : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(read_generate_request({argv + 1, argv + argc}));
  } catch (const Error& error) {
    return report("generate", error, std::cerr);
  }
}
