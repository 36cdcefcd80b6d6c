// For tests of this room: one process is killed, and the other must detect it at once.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>

#include "lockstep/testing/processes.h"
#include "lockstep/testing/soon.h"

namespace lockstep {

/// The note of rank 1 before it waits.
constexpr char kWaitingToBeKilled[] = "waiting to be killed";

/// Runs `body` as two processes. Rank 1 is killed once it has noted kWaitingToBeKilled and rank 0
/// has noted `ready`. Rank 0 must then succeed within 5 s: it would wait minutes for a live peer.
inline void kill_rank_1(const std::function<void(testing::Rank&)>& body, const std::string& ready) {
  std::chrono::steady_clock::time_point killed;
  const auto meanwhile = [&](const testing::RunningRanks& ranks) {
    ranks.wait_for_note(0, ready, testing::soon());
    ranks.wait_for_note(1, kWaitingToBeKilled, testing::soon());
    killed = std::chrono::steady_clock::now();
    ranks.send_signal(1, SIGKILL);
  };
  const auto outcomes = testing::run_ranks_as_processes(
      2, body, {.expect = testing::Expect::anything, .meanwhile = meanwhile});
  EXPECT_TRUE(outcomes[0].succeeded()) << outcomes[0].output;
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
}

}  // namespace lockstep
