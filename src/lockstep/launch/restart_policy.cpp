#include "lockstep/launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

bool is_worth_a_restart(RunCause cause) {
  return cause == RunCause::rank_failed || cause == RunCause::peer_node;
}

std::chrono::milliseconds pause_after(int immediate_crashes) {
  if (immediate_crashes == 0) return std::chrono::milliseconds(0);
  const int doublings = std::min(immediate_crashes - 1, 20);
  return std::min(kFirstPause * (1 << doublings), kLongestPause);
}

}  // namespace

RestartDecision decide_restart(const RestartFacts& facts) {
  if (!is_worth_a_restart(facts.cause)) {
    return {.reason = fmt::format("a run that ended with \"{}\" is not restarted",
                                  describe(facts.cause))};
  }
  if (facts.is_final) return {.reason = "the program's exit code forbids a restart"};
  if (facts.exit_code && says_not_executed(*facts.exit_code)) {
    return {.reason = fmt::format("exit code {} means that the program was not executed",
                                  *facts.exit_code)};
  }
  if (facts.restarts >= facts.max_restarts) {
    return {.reason = facts.max_restarts == 0
                          ? std::string("restarts are not enabled (--max-restarts)")
                          : fmt::format("all {} restarts have been used", facts.max_restarts)};
  }
  const bool immediate = facts.lasted < kImmediateCrash;
  const int crashes = immediate ? facts.immediate_crashes + 1 : 0;
  const auto pause = pause_after(crashes);
  auto reason = immediate ? fmt::format("the last round lasted only {} ms", facts.lasted.count())
                          : std::string("a rank failed");
  return {.restart = true, .pause = pause, .immediate_crashes = crashes, .reason = reason};
}

}  // namespace lockstep
