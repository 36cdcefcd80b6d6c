// What was asked of `lockstep train`: from the command line, the environment and a file.
#pragma once

#include <string>
#include <vector>

#include "cli/train/settings.h"
#include "lockstep/base/environment.h"
#include "lockstep/launch/console_style.h"

namespace lockstep::cli {

struct TrainOptions {
  ModelKind model = ModelKind::gpt;
  std::vector<Given> given;  // file, environment, command line: in this order, later ones win
  ResolveOptions resolve;
  bool help = false;
  bool print_config = false;
  bool fresh = false;  // a new folder beside those that are there
  ColorChoice color = ColorChoice::automatic;
};

/// Reads the arguments after `lockstep train`, the file they name, and LOCKSTEP_TRAIN_… in
/// `environment`. Throws UsageError that names what is not understood and, where there is one, the
/// nearest that would be.
[[nodiscard]] TrainOptions read_train_options(const std::vector<std::string>& arguments,
                                              const Environment& environment);

/// What `lockstep train --help` prints, and for one model.
[[nodiscard]] std::string train_help();
[[nodiscard]] std::string train_help(ModelKind kind);

}  // namespace lockstep::cli
