// The settings of `lockstep train`: one table gives each value of TrainConfig its name, its help
// and its spelling, for the command line (--rate), files (rate = …), the environment
// (LOCKSTEP_TRAIN_RATE) and the saved configuration.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/train/config.h"

namespace lockstep::cli {

struct Setting {
  std::string name;
  std::string group;  // the heading it stands under
  std::string help;
  std::vector<ModelKind> kinds;  // for which it means something
  bool is_fixed = true;          // a run that goes on keeps it: its result depends on it
  bool is_flag = false;
  /// Throws UsageError that names the setting.
  std::function<void(TrainConfig& config, const std::string& text)> set = {};
  std::function<std::string(const TrainConfig& config)> text = {};

  [[nodiscard]] bool is_for(ModelKind kind) const;
};

/// All of them, group by group.
[[nodiscard]] std::span<const Setting> settings();
/// Throws UsageError that names the nearest of those for `kind`; `origin` says where it was found.
[[nodiscard]] const Setting& find_setting(ModelKind kind, std::string_view name,
                                          std::string_view origin);

/// A value that somebody gave.
struct Given {
  std::string name;
  std::string text;
  std::string origin;  // "--rate", "train.toml", "LOCKSTEP_TRAIN_RATE"
};

/// A configuration, and where each value is from.
struct ResolvedConfig {
  TrainConfig config;
  std::map<std::string, std::string> origins;  // by setting
};

struct ResolveOptions {
  bool debug_small = false;
};

/// The defaults of `kind`, with `given` over them: later ones win. Throws UsageError for values
/// that cannot be, or not together.
[[nodiscard]] ResolvedConfig resolve(ModelKind kind, const std::vector<Given>& given,
                                     ResolveOptions options = {});

/// A line a setting: name, value, origin.
[[nodiscard]] std::string describe(const ResolvedConfig& resolved);

}  // namespace lockstep::cli
