// Prepares the data of `lockstep train` as files that ranks can map: downloads, concatenates and
// tokenizes it once, before any rank starts.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/train/saved_config.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

struct DataOptions {
  std::string run_folder;     // gets tokens.bin
  std::string torch_include;  // LibTorch's headers: a text that every machine has
  std::string command;        // as typed, for the commands that messages suggest
  bool has_terminal = false;  // a user reads the messages and can choose
  CommandRunner run = run_command;
};

/// Returns the files for `config`. Tokenizes text for a token model into <run>/tokens.bin. For
/// "auto" the text is Shakespeare. If its download fails, the text is LibTorch's headers, with a
/// remark; at a terminal it throws UsageError that asks the user to choose. Throws UsageError, with
/// a valid choice, for files that do not exist or do not fit the model.
[[nodiscard]] DataFiles prepare_data(const TrainConfig& config, const DataOptions& options,
                                     const Environment& environment);

}  // namespace lockstep::cli
