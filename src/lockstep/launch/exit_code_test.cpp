#include "lockstep/launch/exit_code.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lockstep {
namespace {

TEST(ExitStatus, IsThatOfARealProcess) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(7);
  int raw = 0;
  ASSERT_EQ(::waitpid(child, &raw, 0), child);
  EXPECT_EQ(ExitStatus(raw), ExitStatus::exited(7));
  EXPECT_EQ(ExitStatus(raw).exit_code(), 7);
  EXPECT_EQ(ExitStatus(raw).signal(), std::nullopt);
}

TEST(ExitStatus, DescribesHowAProcessEnded) {
  EXPECT_EQ(ExitStatus::exited(3).describe(), "exit code 3");
  EXPECT_EQ(ExitStatus::signaled(SIGSEGV).describe(), "signal 11 (SIGSEGV)");
  EXPECT_EQ(ExitStatus(SIGSEGV | 0x80).describe(), "signal 11 (SIGSEGV, core dumped)");
  EXPECT_EQ(ExitStatus::signaled(SIGKILL).shell_code(), 137);
}

TEST(LauncherExitCode, IsZeroOnlyWhenEveryRankFinished) {
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::finished}), 0);
}

TEST(LauncherExitCode, IsThatOfTheFirstFailedRank) {
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::rank_failed, .culprit = ExitStatus::exited(42)}),
            42);
  EXPECT_EQ(launcher_exit_code(
                {.cause = RunCause::rank_failed, .culprit = ExitStatus::signaled(SIGSEGV)}),
            139);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::peer_node, .culprit = ExitStatus::exited(9)}),
            9);
}

TEST(LauncherExitCode, DistinguishesFailuresOfTheLauncher) {
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::usage}), 2);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::environment}), 125);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::not_executable}), 126);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::not_found}), 127);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::peer_node}), 125) << "lost without a report";
}

TEST(LauncherExitCode, ContainsTheSignalThatEndedIt) {
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::signal, .signal = SIGINT}), 130);
  EXPECT_EQ(launcher_exit_code({.cause = RunCause::signal, .signal = SIGTERM}), 143);
}

}  // namespace
}  // namespace lockstep
