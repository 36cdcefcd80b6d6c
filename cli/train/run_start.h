// Which folder a run gets, and whether it begins, resumes or is finished: decided before anything
// is made.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/train/saved_config.h"

namespace lockstep::cli {

/// What the end of a run leaves: finished.json.
struct Finished {
  std::string length;  // what was asked: "300st"
  std::int64_t steps = 0;
  std::string why;       // "Done: 300 steps."
  bool gave_up = false;  // for lack of a better evaluation
};

[[nodiscard]] std::string to_json(const Finished& finished);
[[nodiscard]] std::optional<Finished> try_read_finished(const std::string& folder);

enum class StartKind { fresh, resume, finished };

struct RunStart {
  std::string folder;
  StartKind kind = StartKind::fresh;
  std::string reason;  // for people
};

/// What lies in a folder.
struct FolderFacts {
  bool exists = false;
  bool is_run = false;                      // has a config.json
  std::optional<std::string> done_at = {};  // the length it has finished with
};

struct StartRequest {
  std::string folder;
  std::optional<std::string> length = {};  // that was asked for now; none: the run's own
  bool fresh = false;
  bool must_resume = false;
};

/// Throws UsageError when there must be a run and is none, and for a folder that is something else.
[[nodiscard]] RunStart choose_start(const StartRequest& request,
                                    const std::function<FolderFacts(const std::string&)>& look);

/// Looks at the disk.
[[nodiscard]] FolderFacts look_at(const std::string& folder);

}  // namespace lockstep::cli
