#include "lockstep/launch/stop_policy.h"

namespace lockstep {

StopDecision decide_stop(const StopFacts& facts, const StopLimits& limits, StopFacts::Time now) {
  if (facts.killed) {
    const auto force_at = *facts.killed + limits.force;
    if (facts.forced) return {};
    if (now >= force_at) return {StopAction::force};
    return {StopAction::none, force_at};
  }
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
