// The data that `lockstep train` was asked for, as files that ranks can map: fetched, joined and
// tokenized here, once, before any rank starts.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/train/saved_config.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

struct DataOptions {
  std::string run_folder;     // tokens made from text go here
  std::string torch_include;  // LibTorch's headers: the text that every machine has
  std::string command;        // as it was typed, for what is printed to be typed next
  bool has_terminal = false;  // somebody reads messages and can answer them
  CommandRunner run = run_command;
};

/// The files for `config`. Text for a token model is made into <run>/tokens.bin. For "auto", text
/// is Shakespeare's. Where that cannot be fetched, it is LibTorch's headers and the remark says so;
/// with a terminal nothing takes its place: UsageError asks the reader to choose.
/// Throws UsageError for files that are not there or of no use to the model, with what would be.
[[nodiscard]] DataFiles prepare_data(const TrainConfig& config, const DataOptions& options,
                                     const Environment& environment);

}  // namespace lockstep::cli
