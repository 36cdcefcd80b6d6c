// The settings of `lockstep train`: one table gives each value of TrainConfig its name, its help
// and its spelling, for the command line (--lr), files (lr = …), the environment
// (LOCKSTEP_TRAIN_LR) and the saved configuration.
//
// The length of a run is one value with four settings, one per unit: steps, epochs, tokens, time. A
// configuration uses the one whose unit it has.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/train/config.h"

namespace lockstep::cli {

struct Setting {
  std::string name;
  std::string value;             // the placeholder in the help: "N"; empty for a flag
  std::string group;             // the heading in the help
  std::string help;              // meaning and unit, and what 0 means where it is special
  std::vector<ModelKind> kinds;  // the models that have this setting
  bool is_fixed = true;          // the result depends on it: a resumed run keeps its value
  bool is_flag = false;
  std::optional<TrainLength::Unit> length_unit = {};  // of a setting that is the run's length
  /// Throws UsageError that names the setting.
  std::function<void(TrainConfig& config, const std::string& text)> set = {};
  std::function<std::string(const TrainConfig& config)> text = {};

  [[nodiscard]] bool is_for(ModelKind kind) const;
  /// Whether it is for the model of `config` and, for a length, has the unit of its length.
  [[nodiscard]] bool is_used_by(const TrainConfig& config) const;
};

/// All settings, group by group.
[[nodiscard]] std::span<const Setting> settings();
/// Throws UsageError with the nearest setting of `kind`; `origin` states where `name` was found.
[[nodiscard]] const Setting& find_setting(ModelKind kind, std::string_view name,
                                          std::string_view origin);

/// A value that the user gave.
struct Given {
  std::string name;
  std::string text;
  std::string origin;  // "--lr", "train.toml", "LOCKSTEP_TRAIN_LR"
};

/// A configuration, with the origin of each value.
struct ResolvedConfig {
  TrainConfig config;
  std::map<std::string, std::string> origins;  // by name of each setting that config uses
};

/// The setting that has the length of `config`.
[[nodiscard]] const Setting& length_setting(const TrainConfig& config);

struct ResolveOptions {
  bool debug_small = false;
};

/// The defaults of `kind`, replaced by `given`: of several values for a setting, or for the length
/// of the run, the last one counts. Throws UsageError for values that are invalid or contradict
/// each other.
[[nodiscard]] ResolvedConfig resolve(ModelKind kind, const std::vector<Given>& given,
                                     ResolveOptions options = {});

/// One line per setting: name, value, origin.
[[nodiscard]] std::string describe(const ResolvedConfig& resolved);

}  // namespace lockstep::cli
