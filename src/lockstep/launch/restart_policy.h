// Whether the group is started again after a round that failed, and after which pause.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/launch/exit_code.h"

namespace lockstep {

/// A round that failed sooner than this crashed immediately: trying again at once would only make
/// the same failure many times a minute.
constexpr std::chrono::milliseconds kImmediateCrash{10'000};
constexpr std::chrono::milliseconds kFirstPause{1'000};
constexpr std::chrono::milliseconds kLongestPause{60'000};

struct RestartFacts {
  RunCause cause = RunCause::finished;  // of the round that is over
  bool is_final = false;                // the culprit said that another try is of no use
  std::optional<int> exit_code = {};    // of the culprit, if it exited
  int restarts = 0;                     // made so far
  int max_restarts = 0;
  int immediate_crashes = 0;            // rounds in a row before this one that crashed at once
  std::chrono::milliseconds lasted{0};  // this round
};

struct RestartDecision {
  bool restart = false;
  std::chrono::milliseconds pause{0};
  int immediate_crashes = 0;  // for the next decision's facts
  std::string reason = {};    // a clause for the log
};

/// Only failures of ranks are worth another try: a program that is not there or cannot be executed,
/// wrong usage and a user's signal are final.
[[nodiscard]] RestartDecision decide_restart(const RestartFacts& facts);

}  // namespace lockstep
