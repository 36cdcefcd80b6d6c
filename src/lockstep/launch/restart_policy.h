// Decides whether all ranks are restarted after a failed round, and after which pause.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/launch/exit_code.h"

namespace lockstep {

/// A round that failed within this time crashed immediately: without a pause, restarts would only
/// repeat the same failure many times per minute.
constexpr std::chrono::milliseconds kImmediateCrash{10'000};
constexpr std::chrono::milliseconds kFirstPause{1'000};
constexpr std::chrono::milliseconds kLongestPause{60'000};

struct RestartFacts {
  RunCause cause = RunCause::finished;  // of the last round
  bool is_final = false;                // the culprit's exit code forbids a restart
  std::optional<int> exit_code = {};    // of the culprit, if it exited
  int restarts = 0;                     // made so far
  int max_restarts = 0;
  int immediate_crashes = 0;            // consecutive earlier rounds that crashed immediately
  std::chrono::milliseconds lasted{0};  // this round
};

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds pause{0};
  int immediate_crashes = 0;  // for the facts of the next decision
  std::string reason = {};    // a clause for the log
};

/// Only failures of ranks are restarted: a program that does not exist or is not executable,
/// invalid usage and a signal of the user are final.
[[nodiscard]] RestartDecision decide_restart(const RestartFacts& facts);

}  // namespace lockstep
