// Everything that the folder of a run says about it: metrics, configuration, how each launch ended,
// the last calls of its ranks, environment. Missing files are missing parts, never errors: a report
// of a run that was killed at any moment is complete.
//
// The folder of `lockstep train` has one folder per launch in launches/; the folder of `lockstep
// run` is that of its only launch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/report/run_metrics.h"

namespace lockstep {

struct RunSetting {
  std::string name = {};
  std::string value = {};
  std::string origin = {};  // "default", "--lr", "train.toml"

  friend bool operator==(const RunSetting&, const RunSetting&) = default;
};

/// How a rank ended.
struct RankEnd {
  int rank = 0;
  std::string host = {};
  std::string how = {};  // "exit code 3", "SIGKILL", "never started"
  bool failed = false;
  bool told_to_end = false;
  std::string note = {};
  std::string where = {};  // "step 53, backward, bucket 0"
  std::string log = {};    // path of its output
  std::string uncaught = {};
  std::vector<std::string> last_lines = {};
  std::vector<std::string> stack = {};
};

/// end.json.
struct EndRecord {
  std::string cause = {};  // "finished", "rank_failed", "signal", …
  int exit_code = 0;
  std::string signal = {};  // that ended the launcher
  std::string reason = {};
  int restarts = 0;
  std::string started = {};  // UTC
  std::string ended = {};
  std::optional<RankEnd> culprit = {};
  std::vector<RankEnd> ranks = {};
};

/// One collective call in the flight recorder of a rank.
struct RecordedCall {
  std::uint64_t number = 0;
  std::string call = {};
  bool is_complete = false;
  double entered_ms_ago = 0;  // before the record was written
  double took_ms = 0;
};

/// flight-<group>-rank<n>.json.
struct FlightRecord {
  int rank = 0;
  std::string group = {};
  std::string cause = {};
  std::vector<RecordedCall> calls = {};  // oldest first
};

struct LaunchRecord {
  int number = 1;
  std::string folder = {};
  std::optional<EndRecord> end = {};       // nullopt: it runs, or it was killed
  std::vector<FlightRecord> flights = {};  // by group and rank
};

enum class RunOutcome { running, finished, stopped, failed, killed };

struct RunRecord {
  std::string folder = {};  // as it was given
  std::string name = {};    // its last part
  RunOutcome outcome = RunOutcome::running;
  std::string model = {};
  int world = 0;  // ranks of the newest start; 0: unknown
  std::string data = {};
  std::vector<RunSetting> settings = {};
  std::string finished = {};  // "Done: 600 steps."; empty: the run has not reached its end
  std::vector<LaunchRecord> launches = {};
  std::vector<std::pair<std::string, std::string>> environment = {};  // "processor" / "…"
  RunMetrics metrics = {};

  /// The value of a setting; empty if there is none.
  [[nodiscard]] std::string setting(std::string_view name) const;
  /// The end record of the newest launch.
  [[nodiscard]] const EndRecord* last_end() const;
};

/// Whether a process holds the locks of the run, or its launcher is alive.
[[nodiscard]] bool is_active(const std::string& folder);

/// Reads the small files of the folder; `metrics` are taken from the reader. `active` states
/// whether the run is active; a caller without better knowledge uses is_active().
/// Throws UsageError when the folder is none of a run.
[[nodiscard]] RunRecord read_run(const std::string& folder, const RunMetrics& metrics, bool active);

}  // namespace lockstep
