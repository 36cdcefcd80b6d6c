#include "lockstep/testing/processes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/testing/child_process_internal.h"

namespace lockstep::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// The message of the PeerError that running `body` throws.
std::string failure_of(int size, const std::function<void(Rank&)>& body,
                       const ProcessesOptions& options = {}) {
  try {
    (void)run_ranks_as_processes(size, body, options);
  } catch (const PeerError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rank failed";
  return "";
}

void expect_words(const std::string& text, std::initializer_list<const char*> all_words) {
  for (const char* words : all_words) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in\n" << text;
  }
}

[[noreturn]] void wait_to_be_killed(Rank& self) {
  std::puts("last words");
  self.note("waiting to be killed");
  for (;;) ::pause();
}

class ProcessesOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessesOfSize, ::testing::Range(1, 6));

TEST_P(ProcessesOfSize, EachRankRunsInAProcessOfItsOwn) {
  const auto outcomes = run_ranks_as_processes(GetParam(), [](Rank& self) {
    EXPECT_EQ(self.size(), GetParam());
    self.barrier(Deadline::after(30s));
    std::printf("rank %d process %d\n", self.rank(), ::getpid());
  });
  ASSERT_EQ(outcomes.size(), static_cast<std::size_t>(GetParam()));
  std::set<std::string> pids{std::to_string(::getpid())};
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_TRUE(outcomes[rank].succeeded());
    const auto& said = outcomes[rank].output;
    const auto words = "rank " + std::to_string(rank) + " process ";
    ASSERT_NE(said.find(words), std::string::npos) << said;
    pids.insert(said.substr(said.find(words) + words.size()));
  }
  EXPECT_EQ(pids.size(), outcomes.size() + 1) << "two of them are the same process";
}

TEST(Processes, ExceptionsAreNamed) {
  const auto failure = failure_of(3, [](Rank& self) {
    self.note("about to split");
    if (self.rank() == 1) throw UsageError("the batch does not split");
    if (self.rank() == 2) throw 7;  // NOLINT(hicpp-exception-baseclass): any type can be thrown
  });
  expect_words(failure,
               {"2 of 3 ranks failed", "rank 1, process ", "ended with exit code 1",
                "noted \"about to split\"", "lockstep::UsageError: the batch does not split",
                "rank 2, process ", "a value of type int"});
}

TEST(Processes, AnExpectationThatFailsInABodyFailsItsRank) {
  const auto failure = failure_of(2, [](Rank& self) { EXPECT_EQ(self.rank(), 0); });
  expect_words(failure, {"1 of 2 ranks failed", "rank 1, process ", "self.rank()"});
}

TEST(Processes, OnlyTheLast20LinesOfOutputAreShownAndAllAreKept) {
  const auto body = [](Rank& /*self*/) {
    for (int i = 1; i <= 30; ++i) std::printf("line %d.\n", i);
    std::_Exit(3);
  };
  const auto failure = failure_of(1, body);
  expect_words(failure, {"ended with exit code 3", "    | line 11.\n", "    | line 30.\n"});
  EXPECT_EQ(failure.find("line 10."), std::string::npos) << failure;
  const auto outcomes = run_ranks_as_processes(1, body, {.expect = Expect::anything});
  EXPECT_EQ(outcomes[0].exit_code, 3);
  expect_words(outcomes[0].output, {"line 1.\n", "line 30.\n"});
}

TEST(Processes, MoreOutputThanAPipeHoldsBlocksNoRank) {
  const auto outcomes = run_ranks_as_processes(2, [](Rank& /*self*/) {
    const std::string line(1023, 'x');
    for (int i = 0; i < 1024; ++i) std::puts(line.c_str());
    std::puts("the end");
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.output.ends_with("the end\n"));
    EXPECT_LE(outcome.output.size(), 2u * 65536);
  }
}

TEST(Processes, ABodyThatEndsTheProcessHasNotSucceeded) {
  expect_words(failure_of(1, [](Rank& /*self*/) { std::_Exit(0); }),
               {"ended with exit code 0 without returning from the body"});
}

TEST(Processes, AKilledRankIsNamedAndTheOthersAreNotLeftInABarrier) {
  const auto body = [](Rank& self) {
    if (self.rank() == 1) wait_to_be_killed(self);
    self.barrier(Deadline::after(60s));
  };
  const auto kill_rank_1 = [](const RunningRanks& ranks) {
    ranks.wait_for_note(1, "waiting to be killed", Deadline::after(30s));
    ranks.send_signal(1, SIGKILL);
  };
  const auto failure = failure_of(3, body, {.meanwhile = kill_rank_1});
  expect_words(failure, {"3 of 3 ranks failed", "was killed by signal 9 (SIGKILL)",
                         "noted \"waiting to be killed\"", "    | last words",
                         "rank 1 has failed and will not reach"});

  const auto outcomes =
      run_ranks_as_processes(3, body, {.expect = Expect::anything, .meanwhile = kill_rank_1});
  EXPECT_EQ(outcomes[0].exit_code, 1);
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_EQ(outcomes[2].exit_code, 1);
}

TEST(Processes, AStoppedRankIsShownAsStoppedWhenTheLimitPasses) {
  const auto stop_itself = [](Rank& self) {
    if (self.rank() == 0) return;
    std::puts("before the stop");
    self.note("stopping");
    ::raise(SIGSTOP);
  };
  // Long enough for two processes to start under a sanitizer on a busy machine.
  const auto failure = failure_of(2, stop_itself, {.limit = 2000ms, .expect = Expect::anything});
  expect_words(failure, {"1 of 2 ranks did not end within 2000 ms and were killed",
                         "rank 0, process ", "ended with exit code 0", "T (stopped)",
                         "running; noted \"stopping\"", "    | before the stop"});
}

TEST(Processes, AStoppedRankCanBeContinued) {
  const auto wait_for_signal = [](Rank& self) {
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &user, nullptr);
    self.note("waiting for a signal");
    int received = 0;
    ::sigwait(&user, &received);
    EXPECT_EQ(received, SIGUSR1);
  };
  const auto outcomes =
      run_ranks_as_processes(1, wait_for_signal, {.meanwhile = [](const RunningRanks& ranks) {
                               ranks.wait_for_note(0, "waiting for a signal", Deadline::after(30s));
                               for (const int signal : {SIGSTOP, SIGUSR1, SIGCONT})
                                 ranks.send_signal(0, signal);
                             }});
  EXPECT_TRUE(outcomes[0].succeeded());
}

TEST(Processes, WhatMeanwhileThrowsEndsTheRanksAndIsThrown) {
  const auto fail = [](const RunningRanks& ranks) {
    EXPECT_EQ(ranks.size(), 2);
    ranks.wait_for_note(1, "waiting to be killed", Deadline::after(30s));
    throw UsageError("the parent changed its mind");
  };
  try {
    (void)run_ranks_as_processes(2, wait_to_be_killed, {.meanwhile = fail});
    FAIL() << "meanwhile threw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "the parent changed its mind");
  }
}

TEST(Processes, LaterCallsInATestPassTheEarlierOnesWithWhatTheParentGot) {
  const auto first = run_ranks_as_processes(2, [](Rank& self) { std::_Exit(10 + self.rank()); },
                                            {.expect = Expect::anything});
  // This must also hold in a child of a later call, or that child would never reach its call.
  ASSERT_EQ(first[1].exit_code, 11);
  const auto second = failure_of(1, [](Rank& /*self*/) { throw UsageError("second"); });
  ASSERT_NE(second.find("lockstep::UsageError: second"), std::string::npos);
  const auto third = run_ranks_as_processes(
      3, [](Rank& self) { std::printf("third call, %d ranks\n", self.size()); });
  EXPECT_NE(third[2].output.find("third call, 3 ranks"), std::string::npos);
}

TEST(Processes, RunsDoNotNest) {
  const auto failure = failure_of(
      1, [](Rank& /*self*/) { (void)run_ranks_as_processes(1, [](Rank& /*inner*/) {}); });
  expect_words(failure, {"lockstep::UsageError: ranks cannot be run as processes inside another"});
}

TEST(Processes, ARankInheritsOnlyItsOwnDescriptors) {
  const auto kept_open = FileDescriptor::open("/dev/null", 0);
  const int inheritable = ::dup(kept_open.number());  // without close-on-exec
  (void)run_ranks_as_processes(1, [](Rank& /*self*/) {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const auto file = std::filesystem::read_symlink(entry, error).string();
      // The listing itself, the pipe, an empty input, and the two shared files.
      const bool known = file.find("/fd") != std::string::npos || file.starts_with("pipe:") ||
                         file.find("lockstep ") != std::string::npos;
      if (!known) files.insert(entry.path().filename().string() + " " + file);
    }
    // The test opened its own two again before this call.
    const auto is_null = [](const std::string& text) { return text.ends_with(" /dev/null"); };
    EXPECT_EQ(files.size(), 3u) << *files.rbegin();
    EXPECT_TRUE(std::all_of(files.begin(), files.end(), is_null)) << *files.rbegin();
  });
  ::close(inheritable);
}

TEST(Processes, RanksDieWithTheirParent) {
  constexpr const char* kScene = "LOCKSTEP_TEST_PLAYS_THE_PARENT";
  auto environment = Environment::of_process();
  if (environment.flag(kScene)) {
    (void)run_ranks_as_processes(2, wait_to_be_killed, {.meanwhile = [](const RunningRanks& ranks) {
                                   for (int rank = 0; rank < 2; ++rank) {
                                     ranks.wait_for_note(rank, "waiting to be killed",
                                                         Deadline::after(30s));
                                   }
                                   std::printf("\nranks %d %d\n", ranks.pid(0), ranks.pid(1));
                                   std::fflush(stdout);
                                   ::raise(SIGKILL);
                                 }});
    return;
  }
  environment.set(kScene, "1");
  std::vector<ChildProcess> parent;
  parent.emplace_back(std::vector<std::string>{"--gtest_filter=Processes.RanksDieWithTheirParent"},
                      environment);
  ASSERT_TRUE(attend_until_ended(parent, Deadline::after(30s))) << parent[0].output();
  EXPECT_EQ(parent[0].end()->signal, SIGKILL) << parent[0].output();
  const auto said = parent[0].output();
  ASSERT_NE(said.find("\nranks "), std::string::npos) << said;
  std::istringstream pids(said.substr(said.find("\nranks ") + 7));
  for (pid_t pid = 0; pids >> pid;) {
    const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process) continue;  // gone already
    pollfd ended{process.number(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 10'000), 1) << "process " << pid << " outlives its parent";
  }
}

TEST(Processes, AnOutcomeSaysHowAProcessEnded) {
  EXPECT_EQ(describe(ProcessEnd{3, {}}), "ended with exit code 3");
  EXPECT_EQ(describe(ProcessEnd{{}, SIGSEGV}), "was killed by signal 11 (SIGSEGV)");
}

TEST(Processes, LastLinesAreWholeLines) {
  EXPECT_EQ(last_lines("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(last_lines("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(last_lines("a\n", 2), "a\n");
  EXPECT_EQ(last_lines("", 2), "");
}

}  // namespace
}  // namespace lockstep::testing
