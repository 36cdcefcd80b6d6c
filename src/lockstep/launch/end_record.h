// The end record of a run (end.json): how it ended, as JSON for programs. Written once, at the end.
#pragma once

#include <span>
#include <string>

#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/rank_outcome.h"

namespace lockstep {

struct EndFacts {
  RunCause cause = RunCause::finished;
  int exit_code = 0;  // of the launcher
  int signal = 0;     // that ended the launcher; 0: none
  int restarts = 0;
  int max_restarts = 0;
  std::string reason = {};
  RankOutcome::Time started = {};
  RankOutcome::Time ended = {};
};

/// One JSON object: cause, exit_code, the culprit's rank, host and raw status, times in UTC, and
/// how each of `ranks` ended.
[[nodiscard]] std::string end_record(std::span<const RankOutcome> ranks, const EndFacts& facts);

}  // namespace lockstep
