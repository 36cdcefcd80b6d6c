#include "lockstep/testing/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>

#include "lockstep/testing/processes.h"

namespace lockstep::testing {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;

// Hangs under a watchdog in a process of its own, and returns how that process ended.
RankOutcome outcome_of_hang(const std::function<std::string()>& describe) {
  const auto hang = [&](Rank& /*self*/) {
    const Watchdog dog(50ms, describe);
    for (;;) ::pause();
  };
  return run_ranks_as_processes(1, hang, {.expect = Expect::anything}).front();
}

TEST(Watchdog, CalledOffInTimeDoesNothing) {
  bool described = false;
  {
    const Watchdog dog(1h, [&] {
      described = true;
      return std::string();
    });
  }
  EXPECT_FALSE(described);
}

TEST(Watchdog, EndsAHungProcessAndShowsItsState) {
  const auto outcome = outcome_of_hang([] { return std::string("bucket 3 waits for rank 1"); });
  EXPECT_EQ(outcome.exit_code, kHungExitStatus);
  EXPECT_NE(outcome.output.find("did not finish within 0.05 s"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("bucket 3 waits for rank 1"), std::string::npos) << outcome.output;
}

TEST(Watchdog, EndsTheProcessEvenIfItsStateCannotBeDescribed) {
  const auto outcome =
      outcome_of_hang([]() -> std::string { throw std::runtime_error("no state today"); });
  EXPECT_EQ(outcome.exit_code, kHungExitStatus);
  EXPECT_NE(outcome.output.find("no state today"), std::string::npos) << outcome.output;
}

TEST(Watchdog, EndsTheProcessEvenIfDescribingItHangsToo) {
  const auto outcome = outcome_of_hang([]() -> std::string {
    for (;;) ::pause();
  });
  EXPECT_EQ(outcome.exit_code, kHungExitStatus);
  EXPECT_NE(outcome.output.find("was given up"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace lockstep::testing
