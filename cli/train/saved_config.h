// config.json in a run's folder: the effective configuration, which ranks read and a run that goes
// on is held against.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/train/settings.h"
#include "models/gpt_shape.h"

namespace lockstep::cli {

/// What the data setting has come to.
struct DataFiles {
  std::string name = {};                   // for people: "shakespeare"
  std::vector<std::string> training = {};  // paths, from the run's folder; one for a token model
  std::vector<std::string> held_out = {};  // empty: a share of `training`
  std::string tokenizer = {};   // "bytes", or the absolute path of a table; empty: no text
  std::int64_t vocabulary = 0;  // tokens are below this; 0: no tokens
  std::string remark = {};      // what a person should know: a fallback

  friend bool operator==(const DataFiles&, const DataFiles&) = default;
};

struct SavedConfig {
  ResolvedConfig resolved = {};
  DataFiles files = {};
  int world = 1;  // ranks when the run was begun: batches were meant for it
};

/// The model of a run of gpt.
[[nodiscard]] models::GptOptions gpt_of(const SavedConfig& saved);

[[nodiscard]] std::string to_json(const SavedConfig& saved);
/// Throws UsageError for anything that to_json does not write; `origin` names it.
[[nodiscard]] SavedConfig saved_config_from_json(const std::string& json,
                                                 const std::string& origin);

/// <folder>/config.json. Throws UsageError when there is none, naming the folder.
[[nodiscard]] SavedConfig read_config(const std::string& folder);
[[nodiscard]] std::optional<SavedConfig> try_read_config(const std::string& folder);
/// Whole or not at all. Throws SystemError.
void write_config(const std::string& folder, const SavedConfig& saved);

/// Only what decides the result, for a checkpoint to note.
[[nodiscard]] std::string deciding_json(const SavedConfig& saved);

/// The settings that decide a result and differ, as "--rate 0.001, not 0.003"; what `saved` has
/// stands first. Empty when a run of `saved` can go on as `asked`.
[[nodiscard]] std::vector<std::string> differences(const SavedConfig& saved,
                                                   const TrainConfig& asked);

}  // namespace lockstep::cli
