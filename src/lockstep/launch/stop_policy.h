// When workers that still run are told to end, and when they are killed.
#pragma once

#include <chrono>
#include <optional>

namespace lockstep {

struct StopLimits {
  std::chrono::milliseconds report{5'000};  // what the others have to end by themselves, and to
                                            // say why, after a rank has failed
  std::chrono::milliseconds grace{30'000};  // from being told to end to SIGKILL
  std::chrono::milliseconds force{2'000};   // from there to killing without the supervisors' help
};

/// What has happened so far; a time is nothing until it has.
struct StopFacts {
  using Time = std::chrono::steady_clock::time_point;

  std::optional<Time> failed = {};  // a rank has, here or on another node
  std::optional<Time> told = {};    // workers were told to end: SIGTERM, or the user's signal
  bool impatient = false;           // the user pressed Ctrl-C again
  std::optional<Time> killed = {};  // the supervisors were told to kill their sessions
  bool forced = false;
};

// force: the launcher itself kills sessions whose supervisors do not, because they are stopped.
enum class StopAction { none, terminate, kill, force };

struct StopDecision {
  StopAction action = StopAction::none;
  std::optional<StopFacts::Time> look_again = {};  // nothing: only an event can change it
};

[[nodiscard]] StopDecision decide_stop(const StopFacts& facts, const StopLimits& limits,
                                       StopFacts::Time now);

}  // namespace lockstep
