// The options of `lockstep train`: from the command line, the environment and a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/nodes.h"
#include "cli/train/settings.h"
#include "lockstep/base/environment.h"
#include "lockstep/launch/console_style.h"

namespace lockstep::cli {

struct TrainOptions {
  ModelKind model = ModelKind::gpt;
  std::vector<Given> given;  // file, environment, command line; a later value replaces an earlier
  ResolveOptions resolve;
  bool help = false;
  bool print_config = false;
  bool fresh = false;   // start a new run in the next free folder
  std::string profile;  // steps to profile (trace/profile_request.h); empty: none
  NodeOptions nodes;
  ColorChoice color = ColorChoice::automatic;
  std::optional<std::uint16_t> metrics_port = {};  // nullopt: metrics are not served
};

/// Reads the arguments after `lockstep train`, the file that they name, and LOCKSTEP_TRAIN_… in
/// `environment`. Throws UsageError for an unknown name, with the nearest known one, for a name of
/// version 0.1, with its new name, and when one source gives the length of the run twice.
[[nodiscard]] TrainOptions read_train_options(const std::vector<std::string>& arguments,
                                              const Environment& environment);

/// The output of `lockstep train --help`, and of the same for one model.
[[nodiscard]] std::string train_help();
[[nodiscard]] std::string train_help(ModelKind kind);

}  // namespace lockstep::cli
