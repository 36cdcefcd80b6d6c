#include "lockstep/rendezvous/idle_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

#include "lockstep/machine/cpu_topology.h"

namespace lockstep {
namespace {

TEST(IdleCores, AreThoseThatNoThreadOfARankNeeds) {
  EXPECT_EQ(idle_cores(16, 1, 12), 4);
  EXPECT_EQ(idle_cores(16, 1, 16), 0);
  EXPECT_EQ(idle_cores(16, 1, 20), 0);
}

TEST(IdleCores, AreDividedAmongTheRanksThatShareThem) {
  EXPECT_EQ(idle_cores(16, 4, 3), 1);
  EXPECT_EQ(idle_cores(16, 4, 4), 0);
  EXPECT_EQ(idle_cores(15, 2, 4), 3);
}

TEST(IdleCores, AreNoneIfTheNumberOfThreadsIsNotKnown) {
  const auto own = ProcessIdentity::of(::getpid());
  EXPECT_EQ(idle_cores(16, 1, 0), 0);
  EXPECT_EQ(idle_cores({own}, {}), 0);
  EXPECT_EQ(idle_cores({own}, {{"OMP_NUM_THREADS", "many"}}), 0);
}

TEST(IdleCores, OfThisProcessAreThoseBesideItsThreads) {
  const auto own = ProcessIdentity::of(::getpid());
  const auto topology = read_cpu_topology(allowed_processors());
  const int cores = topology.num_cores();
  const int usable = topology.quota ? std::min(cores, static_cast<int>(*topology.quota)) : cores;
  for (const int threads : {1, cores, cores + 1}) {
    EXPECT_EQ(idle_cores({own}, {{"OMP_NUM_THREADS", std::to_string(threads) + ",2"}}),
              std::max(usable - threads, 0));
  }
}

TEST(Sharers, AreTheRanksThatMayUseTheCoresOfThisProcess) {
  const auto own = ProcessIdentity::of(::getpid());
  EXPECT_EQ(num_sharers({own}), 1);
  EXPECT_EQ(num_sharers({own, own}), 2);  // ranks as threads of one process
}

TEST(Sharers, IncludeARankOfWhichNothingIsKnown) {
  const auto own = ProcessIdentity::of(::getpid());
  EXPECT_EQ(num_sharers({own, {.process = 0x7FFFFFFF, .started = 1}}), 2);
  EXPECT_EQ(num_sharers({own, {.process = own.process, .started = own.started - 1}}), 2);
}

bool try_bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  return ::sched_setaffinity(0, sizeof(set), &set) == 0;
}

// As the launcher binds its ranks.
TEST(Sharers, DoNotIncludeARankThatIsBoundToOtherCores) {
  const auto processors = allowed_processors();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!try_bind_to(processors.back())) ::_exit(1);
    (void)!::write(pipe[1], "", 1);
    while (true) ::pause();
  }
  ::close(pipe[1]);  // a child that ends is the end of the pipe
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_TRUE(try_bind_to(processors.front()));
  char is_bound = 0;
  EXPECT_EQ(::read(pipe[0], &is_bound, 1), 1);
  EXPECT_EQ(num_sharers({ProcessIdentity::of(::getpid()), ProcessIdentity::of(child)}),
            processors.size() > 1 ? 1 : 2);
  EXPECT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(pipe[0]);
}

}  // namespace
}  // namespace lockstep
