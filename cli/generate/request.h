// The options of `lockstep generate`. The command reads them first, to refuse invalid ones before
// LibTorch is loaded; then the program that it executes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train/saved_config.h"

namespace lockstep::cli {

struct GenerateRequest {
  std::string run = "runs/gpt";  // the default folder of `lockstep train gpt`
  std::string prompt = {};
  std::string checkpoint = {};  // best, last or a step; empty: best if it exists, else last
  double temperature = 0.8;
  std::int64_t top_k = 40;
  std::int64_t num_tokens = 400;
  std::int64_t seed = 1;
  TrainDevice device = TrainDevice::automatic;
  bool help = false;  // help was requested; the other values are not checked
};

/// Reads the arguments after `lockstep generate`. Throws UsageError that names the invalid
/// argument, with the nearest option for an unknown one; and for an empty prompt.
[[nodiscard]] GenerateRequest read_generate_request(const std::vector<std::string>& arguments);

/// The configuration of the run. Throws UsageError when the folder has no run, and when its model
/// is not a GPT.
[[nodiscard]] SavedConfig config_of(const GenerateRequest& request);

/// The output of `lockstep generate --help`; it fits a screen.
[[nodiscard]] std::string generate_help();

}  // namespace lockstep::cli
