// Decides when workers that still run get SIGTERM, and when they are killed.
#pragma once

#include <chrono>
#include <optional>

namespace lockstep {

struct StopLimits {
  std::chrono::milliseconds report{5'000};  // for the other ranks to end by themselves and print
                                            // the reason, after a rank has failed
  std::chrono::milliseconds grace{30'000};  // from SIGTERM to SIGKILL
  std::chrono::milliseconds force{2'000};   // from there to a kill without the supervisors
};

/// The events so far; a time is nullopt until its event has happened.
struct StopFacts {
  using Time = std::chrono::steady_clock::time_point;

  std::optional<Time> failed = {};  // a rank has failed, here or on another node
  std::optional<Time> told = {};    // workers got SIGTERM or the user's signal
  bool impatient = false;           // the user pressed Ctrl-C again
  std::optional<Time> killed = {};  // the supervisors got the request to kill their sessions
  bool forced = false;
};

// force: the launcher itself kills the sessions of supervisors that do not act, such as stopped
// ones.
enum class StopAction { none, terminate, kill, force };

struct StopDecision {
  StopAction action = StopAction::none;
  std::optional<StopFacts::Time> look_again = {};  // nullopt: only an event changes the decision
};

[[nodiscard]] StopDecision decide_stop(const StopFacts& facts, const StopLimits& limits,
                                       StopFacts::Time now);

}  // namespace lockstep
