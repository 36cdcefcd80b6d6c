#include "lockstep/launch/restart_policy.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""min;

RestartFacts failed_after(std::chrono::milliseconds lasted) {
  return {.cause = RunCause::rank_failed, .max_restarts = 3, .lasted = lasted};
}

TEST(RestartPolicy, RestartsHappenOnlyIfEnabled) {
  EXPECT_FALSE(decide_restart({.cause = RunCause::rank_failed}).restart);
}

TEST(RestartPolicy, ARankThatFailsAfterAWhileIsRestartedAtOnce) {
  const auto decision = decide_restart(failed_after(5min));
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.pause, 0ms);
  EXPECT_EQ(decision.reason, "a rank failed");
}

TEST(RestartPolicy, AProgramCanForbidARestart) {
  auto facts = failed_after(5min);
  facts.is_final = true;
  EXPECT_FALSE(decide_restart(facts).restart);
}

TEST(RestartPolicy, AProgramThatWasNotExecutedIsNotRestartedAndTheReasonIsGiven) {
  auto facts = failed_after(5ms);
  for (const int code : {126, 127}) {
    facts.exit_code = code;
    const auto decision = decide_restart(facts);
    EXPECT_FALSE(decision.restart) << code;
    EXPECT_EQ(decision.reason,
              "exit code " + std::to_string(code) + " means that the program was not executed");
  }
  for (const int code : {1, 123, 124, 125, 128, 255}) {
    facts.exit_code = code;
    EXPECT_TRUE(decide_restart(facts).restart) << code;
  }
}

TEST(RestartPolicy, RestartsAreCounted) {
  auto facts = failed_after(5min);
  facts.restarts = 3;
  const auto decision = decide_restart(facts);
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.reason, "all 3 restarts have been used");
}

TEST(RestartPolicy, ImmediateCrashesWaitTwiceAsLongEachTimeUpToAMinute) {
  auto facts = failed_after(20ms);
  facts.max_restarts = 100;
  std::chrono::milliseconds expected = 1000ms;
  for (int round = 0; round < 40; ++round) {
    const auto decision = decide_restart(facts);
    EXPECT_EQ(decision.pause, expected) << round;
    expected = std::min(expected * 2, kLongestPause);
    facts.immediate_crashes = decision.immediate_crashes;
  }
  facts.lasted = 5min;
  EXPECT_EQ(decide_restart(facts).immediate_crashes, 0) << "a long round resets the count";
}

TEST(RestartPolicy, FailuresThatARestartCannotFixAreFinal) {
  for (const auto cause : {RunCause::finished, RunCause::signal, RunCause::not_found,
                           RunCause::not_executable, RunCause::usage, RunCause::environment}) {
    EXPECT_FALSE(decide_restart({.cause = cause, .max_restarts = 3}).restart) << describe(cause);
  }
}

}  // namespace
}  // namespace lockstep
