#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {
namespace {

// An idle process until it is killed; reaped at the end.
class Idle {
 public:
  Idle() : process_(::fork()) {
    if (process_ != 0) return;
    for (;;) ::pause();
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  ~Idle() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  pid_t process_;
};

template <typename Condition>
bool soon(const Condition& condition) {
  const auto deadline = Deadline::after(std::chrono::seconds(10));
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Peers, ALiveProcessIsNotDead) {
  const Idle idle;
  ProcessWatches watches;
  const Peers peers(
      std::array{ProcessIdentity::of(::getpid()), ProcessIdentity::of(idle.process())}, watches);
  EXPECT_FALSE(peers.dead(0));
  EXPECT_FALSE(peers.dead(1));
  EXPECT_EQ(peers.process(1), idle.process());
  EXPECT_EQ(peers.describe(1), "pid " + std::to_string(idle.process()));
}

TEST(Peers, AProcessWithTheReusedNumberOfAnEndedOneIsNotMistakenForIt) {
  const Idle idle;
  ProcessWatches watches;
  auto before = ProcessIdentity::of(idle.process());
  before.started -= 1;
  const Peers peers(std::array{before}, watches);
  EXPECT_TRUE(peers.dead(0));
  const Peers now(std::array{ProcessIdentity::of(idle.process())}, watches);
  EXPECT_FALSE(now.dead(0));
}

TEST(Peers, AProcessWhoseStartIsUnknownIsWatchedByItsNumber) {
  const Idle idle;
  ProcessWatches watches;
  const Peers peers(std::array{ProcessIdentity{idle.process(), 0}}, watches);
  EXPECT_FALSE(peers.dead(0));
}

TEST(Peers, GroupsShareTheDescriptorsOfTheirProcesses) {
  ProcessWatches watches;
  const auto self = ProcessIdentity::of(::getpid());
  const auto first = watches.watch(self);
  EXPECT_EQ(watches.watch(self), first);
}

TEST(Peers, AKilledProcessIsDeadBeforeItIsReapedAndAfter) {
  const Idle idle;
  ProcessWatches watches;
  const Peers peers(std::array{ProcessIdentity::of(idle.process())}, watches);
  ::kill(idle.process(), SIGKILL);
  EXPECT_TRUE(soon([&] { return peers.dead(0); }));
  ::waitpid(idle.process(), nullptr, 0);
  EXPECT_TRUE(peers.dead(0));
}

TEST(Peers, AProcessThatEndedBeforeTheWatchIsDead) {
  pid_t process = 0;
  {
    const Idle idle;
    process = idle.process();
  }
  ProcessWatches watches;
  EXPECT_TRUE(Peers(std::array{ProcessIdentity::of(process)}, watches).dead(0));
}

TEST(Peers, AStoppedProcessIsAliveAndReportedAsStopped) {
  const Idle idle;
  ProcessWatches watches;
  const Peers peers(std::array{ProcessIdentity::of(idle.process())}, watches);
  ::kill(idle.process(), SIGSTOP);
  const auto expected = "pid " + std::to_string(idle.process()) + ", stopped by a signal";
  EXPECT_TRUE(soon([&] { return peers.describe(0) == expected; })) << peers.describe(0);
  EXPECT_FALSE(peers.dead(0));
}

}  // namespace
}  // namespace lockstep
