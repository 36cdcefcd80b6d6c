#include "lockstep/testing/threads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/watchdog.h"

namespace lockstep::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

class ThreadsOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsOfSize, ::testing::Range(1, 6));

TEST_P(ThreadsOfSize, EachRankRunsOnce) {
  std::array<std::atomic<int>, 5> calls{};
  run_ranks_as_threads(GetParam(), [&](Rank& self) {
    EXPECT_EQ(self.size(), GetParam());
    EXPECT_FALSE(self.deadline().expired());
    ++calls[static_cast<std::size_t>(self.rank())];
  });
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(calls[static_cast<std::size_t>(rank)], rank < GetParam() ? 1 : 0);
  }
}

TEST_P(ThreadsOfSize, RanksRunAtTheSameTime) {
  // A barrier returns only if all ranks run at the same time.
  run_ranks_as_threads(GetParam(), [](Rank& self) { self.barrier(Deadline::after(30s)); });
}

TEST(Threads, EveryFailedRankIsNamedWithWhatItThrew) {
  const auto body = [](Rank& self) {
    if (self.rank() == 1) throw UsageError("the batch does not split");
    if (self.rank() == 2) throw std::bad_alloc();
    if (self.rank() == 4) throw 7;  // NOLINT(hicpp-exception-baseclass): any type can be thrown
  };
  try {
    run_ranks_as_threads(5, body);
    FAIL() << "three ranks failed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_STREQ(error.what(),
                 "3 of 5 ranks failed:\n"
                 "  rank 1: lockstep::UsageError: the batch does not split\n"
                 "  rank 2: std::bad_alloc: std::bad_alloc\n"
                 "  rank 4: it threw a value of type int, which has no message");
  }
}

TEST(Threads, ARankThatFailsDoesNotLeaveTheOthersInABarrier) {
  const auto body = [](Rank& self) {
    if (self.rank() == 2) throw UsageError("no");
    self.barrier(Deadline::after(60s));
  };
  try {
    run_ranks_as_threads(3, body);
    FAIL() << "rank 2 failed";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("3 of 3 ranks failed"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("rank 2 has failed and will not reach barrier 1"),
              std::string::npos);
  }
}

TEST(Threads, AHangShowsTheStateOfEveryRank) {
  const auto hang = [](Rank& self) {
    self.note("just started");
    if (self.rank() == 0) return;
    if (self.rank() == 1) throw UsageError("gave up");
    self.note("waiting for a condition");
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable never;
    never.wait(lock, [] { return false; });
  };
  const auto hang_in_threads = [&](Rank& /*self*/) {
    run_ranks_as_threads(4, hang, {.limit = 300ms});
  };
  const auto outcomes = run_ranks_as_processes(1, hang_in_threads, {.expect = Expect::anything});
  EXPECT_EQ(outcomes[0].exit_code, kHungExitStatus);
  const auto& said = outcomes[0].output;
  for (const char* words :
       {"2 of 4 ranks have not finished", "rank 0: finished; noted \"just started\"",
        "rank 1: failed; noted \"just started\"", "lockstep::UsageError: gave up",
        "rank 2: running; noted \"waiting for a condition\" 0.",
        "rank 3: running; noted \"waiting for a condition\" 0.", "rank 2, thread ",
        ": S (sleeping)", "    #0 "}) {
    EXPECT_NE(said.find(words), std::string::npos) << words << " is not in\n" << said;
  }
}

}  // namespace
}  // namespace lockstep::testing
