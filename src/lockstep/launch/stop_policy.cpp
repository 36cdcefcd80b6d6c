#include "lockstep/launch/stop_policy.h"

namespace lockstep {

StopDecision decide_stop(const StopFacts& facts, const StopLimits& limits, StopFacts::Time now) {
  if (facts.killed) return {};
  if (facts.impatient) return {StopAction::kill};
  if (facts.told) {
    const auto kill_at = *facts.told + limits.grace;
    if (now >= kill_at) return {StopAction::kill};
    return {StopAction::none, kill_at};
  }
  if (facts.failed) {
    const auto tell_at = *facts.failed + limits.report;
    if (now >= tell_at) return {StopAction::terminate};
    return {StopAction::none, tell_at};
  }
  return {};
}

}  // namespace lockstep
