// The folder of a run, and whether the run starts, resumes or is finished: decided before anything
// is written.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/train/saved_config.h"

namespace lockstep::cli {

/// finished.json, which the end of a run writes.
struct Finished {
  std::string length;  // as requested: "300st"
  std::int64_t steps = 0;
  std::string why;       // "Done: 300 steps."
  bool gave_up = false;  // its patience ended: too many evaluations without a new best
};

[[nodiscard]] std::string to_json(const Finished& finished);
[[nodiscard]] std::optional<Finished> try_read_finished(const std::string& folder);

enum class StartKind { fresh, resume, finished };

struct RunStart {
  std::string folder;
  StartKind kind = StartKind::fresh;
  std::string reason;  // for messages
};

/// The facts about a folder that the decision needs.
struct FolderFacts {
  bool exists = false;
  bool is_run = false;                      // has a config.json
  std::optional<std::string> done_at = {};  // the length of a run that has finished: "300st"
};

struct StartRequest {
  std::string folder;
  std::optional<std::string> length = {};  // requested now; nullopt: that of the run
  bool fresh = false;
  bool must_resume = false;
};

/// Throws UsageError when must_resume is set and there is no run, and for a folder that is not a
/// run.
[[nodiscard]] RunStart choose_start(const StartRequest& request,
                                    const std::function<FolderFacts(const std::string&)>& look);

/// Reads the facts from the disk. Throws UsageError for an invalid finished.json.
[[nodiscard]] FolderFacts look_at(const std::string& folder);

}  // namespace lockstep::cli
