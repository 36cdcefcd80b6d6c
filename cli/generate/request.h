// What `lockstep generate` is asked for: read once by the command, which refuses what cannot be
// before LibTorch is loaded, and once by the program that it becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train/saved_config.h"

namespace lockstep::cli {

struct GenerateRequest {
  std::string run = "runs/gpt";  // where `lockstep train gpt` puts its first run
  std::string prompt = {};
  std::string checkpoint = {};  // best, last or a step; empty: best where there is one, else last
  double temperature = 0.8;
  std::int64_t top_k = 40;
  std::int64_t num_tokens = 400;
  std::int64_t seed = 1;
  bool help = false;  // asked for help: nothing else was read
};

/// Reads the arguments after `lockstep generate`. Throws UsageError that names the argument and,
/// for an unknown option, the nearest one; and for an empty prompt.
[[nodiscard]] GenerateRequest read_generate_request(const std::vector<std::string>& arguments);

/// The configuration of the run that text is asked of. Throws UsageError when there is no run, and
/// when its model writes no text.
[[nodiscard]] SavedConfig config_of(const GenerateRequest& request);

/// What `lockstep generate --help` prints; fits a screen.
[[nodiscard]] std::string generate_help();

}  // namespace lockstep::cli
