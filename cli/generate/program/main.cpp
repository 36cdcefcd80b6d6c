// lockstep-generate: the part of `lockstep generate` that needs LibTorch. The lockstep command
// executes it; users do not.
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <string>
#include <vector>

#include "cli/error_report.h"
#include "cli/generate/program/generate.h"
#include "cli/generate/program/generation_device.h"
#include "cli/generate/program/terminal_text.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/stop_signals.h"

namespace {

using namespace lockstep;
using namespace lockstep::cli;

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
  auto trained = load_trained_gpt(request);
  const auto size = models::num_parameters(trained.net->options());
  if (size < kLargeModel) torch::set_num_threads(1);  // more would mostly wait for each other
  const auto device =
      choose_generation_device(request.device, static_cast<int>(torch::cuda::device_count()), size);
  if (device.is_gpu) trained.net->to(torch::kCUDA);
  const StopSignals signals;
  say(fmt::format("{}: step {}{}, {:.1f} M parameters{}{}; seed {}", request.run, trained.step,
                  trained.is_best ? " (best)" : "", static_cast<double>(size) / 1e6,
                  device.reason.empty() ? "" : ", ", device.reason, request.seed));
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
