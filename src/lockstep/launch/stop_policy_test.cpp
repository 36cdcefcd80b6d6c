#include "lockstep/launch/stop_policy.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;

const StopFacts::Time kStart{};
const StopLimits kLimits{.report = 5s, .grace = 30s};

TEST(StopPolicy, WorkersWithoutAFailureContinue) {
  const auto decision = decide_stop({}, kLimits, kStart + 1000s);
  EXPECT_EQ(decision.action, StopAction::none);
  EXPECT_EQ(decision.look_again, std::nullopt);
}

TEST(StopPolicy, AfterAFailureTheOthersHaveTimeToReportBeforeSigterm) {
  const StopFacts facts{.failed = kStart};
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 4s).action, StopAction::none);
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 4s).look_again, kStart + 5s);
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 5s).action, StopAction::terminate);
}

TEST(StopPolicy, AWorkerIsKilledWhenTheGracePeriodEnds) {
  const StopFacts facts{.failed = kStart, .told = kStart + 5s};
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 34s).action, StopAction::none);
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 34s).look_again, kStart + 35s);
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 35s).action, StopAction::kill);
}

TEST(StopPolicy, ASecondCtrlCKillsNow) {
  const StopFacts facts{.told = kStart, .impatient = true};
  EXPECT_EQ(decide_stop(facts, kLimits, kStart).action, StopAction::kill);
}

TEST(StopPolicy, WorkersThatOutliveTheKillAreForcedOnce) {
  StopFacts facts{.told = kStart, .killed = kStart};
  const auto waits = decide_stop(facts, kLimits, kStart + 1s);
  EXPECT_EQ(waits.action, StopAction::none);
  EXPECT_EQ(waits.look_again, kStart + kLimits.force);
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + kLimits.force).action, StopAction::force);
  facts.forced = true;
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 60s).action, StopAction::none);
}

TEST(StopPolicy, NoWorkerIsKilledTwice) {
  const StopFacts facts{.told = kStart, .impatient = true, .killed = kStart, .forced = true};
  EXPECT_EQ(decide_stop(facts, kLimits, kStart + 100s).action, StopAction::none);
}

}  // namespace
}  // namespace lockstep
