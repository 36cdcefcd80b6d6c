#include "lockstep/base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ns;
using std::chrono_literals::operator""s;

TEST(Deadline, InThePastIsExpiredAndHasNothingLeft) {
  const auto past = Deadline::after(-1s);
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.remaining(), Deadline::Clock::duration::zero());
  EXPECT_EQ(past.poll_milliseconds(), 0);
}

TEST(Deadline, InTheFutureHasTimeLeft) {
  const auto future = Deadline::after(1h);
  EXPECT_FALSE(future.expired());
  EXPECT_GT(future.remaining(), 59 * 60s);
  EXPECT_LE(future.remaining(), 1h);
}

TEST(Deadline, PollRoundsUpSoThatAWaitNeverEndsEarly) {
  const auto soon = Deadline::after(1h + 1ns);
  EXPECT_EQ(soon.poll_milliseconds(), 3'600'000);
}

TEST(Deadline, ASpanTooLongForTheClockDoesNotWrapIntoThePast) {
  const auto far = Deadline::after(Deadline::Clock::duration::max());
  EXPECT_FALSE(far.expired());
  EXPECT_EQ(far.poll_milliseconds(), std::numeric_limits<int>::max());
}

TEST(Deadline, TheEarlierOfTwoBindsFirst) { EXPECT_LT(Deadline::after(1s), Deadline::after(1h)); }

}  // namespace
}  // namespace lockstep
