// config.json in the folder of a run: the effective configuration. Ranks read it, and a resumed run
// is compared with it. Files of version 0.1 are read too (old_spellings.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/train/settings.h"
#include "models/gpt_shape.h"

namespace lockstep::cli {

/// The files that the setting `data` stands for.
struct DataFiles {
  std::string name = {};                     // for messages: "shakespeare"
  std::vector<std::string> training = {};    // paths, from the run's folder; one for a token model
  std::vector<std::string> validation = {};  // empty: a fraction of `training` is used
  std::string tokenizer = {};   // "bytes", or the absolute path of a table; empty: no text
  std::int64_t vocabulary = 0;  // tokens are below this; 0: no tokens
  std::string remark = {};      // a warning for the user: another text took the default's place

  friend bool operator==(const DataFiles&, const DataFiles&) = default;
};

struct SavedConfig {
  ResolvedConfig resolved = {};
  DataFiles files = {};
  int world = 1;  // ranks when the run started: batch sizes refer to it
};

/// The paths of `files`, which are relative to the run's folder.
[[nodiscard]] std::vector<std::string> data_paths(const std::string& folder,
                                                  const DataFiles& files);

/// The shape of the model, for a run of gpt.
[[nodiscard]] models::GptOptions gpt_of(const SavedConfig& saved);

[[nodiscard]] std::string to_json(const SavedConfig& saved);
/// Throws UsageError, which names `origin`, for a text that neither to_json nor version 0.1 writes.
[[nodiscard]] SavedConfig saved_config_from_json(const std::string& json,
                                                 const std::string& origin);

/// Reads <folder>/config.json. read_config throws UsageError that names the folder when there is no
/// such file; both throw as saved_config_from_json does.
[[nodiscard]] SavedConfig read_config(const std::string& folder);
[[nodiscard]] std::optional<SavedConfig> try_read_config(const std::string& folder);
/// Replaces the file atomically. Throws SystemError.
void write_config(const std::string& folder, const SavedConfig& saved);

/// The settings that the result depends on, for a checkpoint to note.
[[nodiscard]] std::string deciding_json(const SavedConfig& saved);

/// The settings that the result depends on and that differ, as "--lr 0.001, not 0.003"; the value
/// of `saved` comes first. Empty when a run of `saved` can resume with `asked`.
[[nodiscard]] std::vector<std::string> differences(const SavedConfig& saved,
                                                   const TrainConfig& asked);

}  // namespace lockstep::cli
