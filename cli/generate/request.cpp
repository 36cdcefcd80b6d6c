#include "cli/generate/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "cli/arguments.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

void check_checkpoint(const std::string& word) {
  const auto is_digit = [](unsigned char letter) { return std::isdigit(letter) != 0; };
  if (word.empty() || word == "best" || word == "last" || std::ranges::all_of(word, is_digit)) {
    return;
  }
  throw UsageError(
      fmt::format("--checkpoint is \"{}\", expected best, last or a step such as 300", word));
}

TrainDevice device_named(const std::string& word) {
  if (word == "auto") return TrainDevice::automatic;
  if (word == "cpu") return TrainDevice::cpu;
  if (word == "cuda") return TrainDevice::cuda;
  throw UsageError(fmt::format("--device is \"{}\", expected auto, cpu or cuda", word));
}

void check(const GenerateRequest& request) {
  if (request.prompt.empty()) {
    throw UsageError("there is no text to continue: give one with --prompt \"…\"");
  }
  if (!(request.temperature >= 0) || std::isinf(request.temperature)) {
    throw UsageError(fmt::format(
        "--temperature is {}, expected 0 (always the most likely token) or a number above 0",
        request.temperature));
  }
  if (request.top_k < 0) {
    throw UsageError(
        fmt::format("--top-k is {}, expected a number of tokens, or 0 for all", request.top_k));
  }
  if (request.num_tokens < 1) {
    throw UsageError(fmt::format("--tokens is {}, expected 1 or more", request.num_tokens));
  }
  if (request.seed < 0) {
    throw UsageError(fmt::format("--seed is {}, expected 0 or more", request.seed));
  }
  check_checkpoint(request.checkpoint);
}

}  // namespace

GenerateRequest read_generate_request(const std::vector<std::string>& arguments) {
  GenerateRequest request;
  Arguments declared("generate", request.help);
  declared.option("-r,--run", request.run);
  declared.option("-p,--prompt", request.prompt);
  declared.option("--checkpoint", request.checkpoint);
  declared.option("-t,--temperature", request.temperature);
  declared.option("-k,--top-k", request.top_k);
  declared.option("-n,--tokens", request.num_tokens);
  declared.option("--seed", request.seed);
  std::string device = "auto";
  declared.option("--device", device);
  declared.read(arguments);
  if (request.help) return request;
  request.device = device_named(device);
  check(request);
  return request;
}

SavedConfig config_of(const GenerateRequest& request) {
  if (!std::filesystem::is_directory(request.run)) {
    throw UsageError(fmt::format(
        "there is no run in {}: name its folder with --run, or train one with `lockstep train gpt`",
        request.run));
  }
  auto saved = read_config(request.run);
  if (saved.resolved.config.model != ModelKind::gpt) {
    throw UsageError(
        fmt::format("{} is a run of {}, which does not generate text: name a run of gpt with --run",
                    request.run, name_of(saved.resolved.config.model)));
  }
  return saved;
}

std::string generate_help() {
  const GenerateRequest defaults;
  return fmt::format(
      "lockstep generate --prompt TEXT [options]: generate text with a GPT that\n"
      "`lockstep train gpt` has trained\n"
      "\n"
      "  -p, --prompt TEXT      the text to continue\n"
      "  -r, --run DIR          folder of the run (default {})\n"
      "  -n, --tokens N         tokens to generate, 1 or more; a token is a byte or a\n"
      "                         part of a word (default {})\n"
      "  -t, --temperature X    divides the logits; 0: always the most likely token\n"
      "                         (default {})\n"
      "  -k, --top-k N          sample from the N most likely tokens; 0: from all\n"
      "                         (default {})\n"
      "  --seed N               seed of the random choice (default {})\n"
      "  --checkpoint WHICH     best, last or a step (default: best if it exists, else\n"
      "                         last)\n"
      "  --device WHICH         cpu, cuda, or auto: a GPU for 10 M parameters or more\n"
      "\n"
      "The text is written to standard output while it is generated, messages to\n"
      "standard error. Ctrl-C stops it.\n"
      "\n"
      "Examples\n"
      "  lockstep generate --prompt \"O Romeo, \"\n"
      "  lockstep generate --run runs/mine -t 0 --prompt \"The \" > text.txt\n",
      defaults.run, defaults.num_tokens, defaults.temperature, defaults.top_k, defaults.seed);
}

}  // namespace lockstep::cli
