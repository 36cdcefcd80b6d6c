// The names that version 0.1 of `lockstep train` used for settings and metrics, with today's names.
// This is the only table of them. An old name on the command line, in a configuration file or in
// the environment is an error that states the new name; files of a 0.1 run (config.json, metrics,
// checkpoints) are read with both.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct OldSetting {
  std::string_view name;
  std::vector<std::string_view> new_names;  // several: one of them, by the unit of the value
};

/// nullptr when `name` is not a setting of version 0.1 that has another name today.
[[nodiscard]] const OldSetting* try_old_setting(std::string_view name);

/// "--rate is now --lr", with each name written by `spell`.
[[nodiscard]] std::string renaming_text(const OldSetting& old,
                                        const std::function<std::string(std::string_view)>& spell);

struct NamedText {
  std::string name;
  std::string text;
};
/// A setting of a saved configuration, under today's name: {"for", "300st"} becomes
/// {"steps", "300"}. Throws UsageError for a length that is invalid.
[[nodiscard]] NamedText with_new_name(NamedText setting);

/// The configuration that a checkpoint of a run notes, with today's names of settings, in the order
/// of their names. Returns `json` unchanged when it is not an object.
[[nodiscard]] std::string noted_configuration_with_new_names(const std::string& json);

/// The files of the data that only evaluations use, in config.json: "validation", and its old name.
inline constexpr std::string_view kValidationKey = "validation";
inline constexpr std::string_view kOldValidationKey = "held_out";

/// Today's name of each metric that has been renamed, by its old name.
[[nodiscard]] const std::map<std::string, std::string>& renamed_metrics();

}  // namespace lockstep::cli
