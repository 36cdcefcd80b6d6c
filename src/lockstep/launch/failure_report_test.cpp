#include "lockstep/launch/failure_report.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

RankOutcome ended(int rank, ExitStatus status, std::chrono::milliseconds at) {
  RankOutcome outcome{.rank = rank, .host = "h1", .pid = 100 + rank, .status = status};
  outcome.ended = outcome.started + at;
  outcome.log_path = "runs/r/logs/rank-00" + std::to_string(rank) + ".log";
  return outcome;
}

TEST(Culprit, IsTheFirstToFail) {
  const std::vector ranks{ended(0, ExitStatus::exited(1), 2010ms),
                          ended(1, ExitStatus::signaled(SIGSEGV), 2000ms),
                          ended(2, ExitStatus::exited(0), 5ms)};
  EXPECT_EQ(find_culprit(ranks), 1u);
}

TEST(Culprit, IsTheKilledRankEvenIfOthersEndBeforeItsSupervisorReports) {
  std::vector ranks{ended(0, ExitStatus::exited(1), 2000ms),
                    ended(1, ExitStatus::signaled(SIGKILL), 2020ms),
                    ended(2, ExitStatus::signaled(SIGABRT), 2001ms)};
  EXPECT_EQ(find_culprit(ranks), 1u);
  ranks[1] = ended(1, ExitStatus::signaled(SIGKILL), 4000ms);
  EXPECT_EQ(find_culprit(ranks), 0u) << "the later crash is a different failure";
}

TEST(Culprit, IsNeverARankThatTheLauncherEnded) {
  std::vector ranks{ended(0, ExitStatus::signaled(SIGTERM), 5ms),
                    ended(1, ExitStatus::exited(3), 6ms)};
  ranks[0].told_to_end = true;
  EXPECT_EQ(find_culprit(ranks), 1u);
  ranks[1].told_to_end = true;
  EXPECT_EQ(find_culprit(ranks), std::nullopt);
}

TEST(FailureBlock, HasTheCulpritItsLastLinesItsStackAndFoldsTheOthers) {
  std::vector ranks{
      ended(0, ExitStatus::exited(1), 2400ms), ended(1, ExitStatus::signaled(SIGSEGV), 2300ms),
      ended(2, ExitStatus::exited(1), 2500ms), ended(3, ExitStatus::signaled(SIGTERM), 7300ms),
      ended(4, ExitStatus::exited(0), 100ms)};
  ranks[3].told_to_end = true;
  ranks[1].last_lines = {"step 7", "\x1b[31mbad\x1b[0m"};
  ranks[1].stack = {"SIGSEGV in thread 5 (main)", "#0 train_step at main.cpp:12"};
  EXPECT_EQ(failure_block(ranks, {.program = "./train", .run_folder = "runs/r"}),
            "lockstep | rank 1 on h1 failed: signal 11 (SIGSEGV), 2.3 s after its start\n"
            "its last 2 lines:\n"
            "    | step 7\n"
            "    | bad\n"
            "its stack, innermost first:\n"
            "    | SIGSEGV in thread 5 (main)\n"
            "    | #0 train_step at main.cpp:12\n"
            "2 other ranks 0,2: exit code 1\n"
            "1 other rank 4: finished\n"
            "1 other rank 3: signal 15 (SIGTERM) after the launcher ended it\n"
            "run folder: runs/r\n"
            "next: read its complete log: less runs/r/logs/rank-001.log\n");
}

TEST(FailureBlock, StartsWithTheExceptionAndNamesTheRankThatLeftBefore) {
  std::vector ranks{ended(0, ExitStatus::signaled(SIGABRT), 900ms),
                    ended(1, ExitStatus::exited(0), 500ms), ended(2, ExitStatus::exited(0), 400ms)};
  ranks[0].uncaught =
      "rank 1 has left group world while others are in call 7 (lockstep::PeerError)";
  const auto block = failure_block(ranks, {.program = "./train"});
  EXPECT_TRUE(block.starts_with(
      "lockstep | rank 1 on h1 ended with exit code 0 while other ranks were still in collectives\n"
      "rank 0 on h1 failed: signal 6 (SIGABRT), 0.9 s after its start\n"
      "error: rank 1 has left group world while others are in call 7 (lockstep::PeerError)\n"))
      << block;
}

TEST(FailureBlock, SuspectsMemoryWhenTheLauncherDidNotSendSigkill) {
  const std::vector ranks{ended(0, ExitStatus::signaled(SIGKILL), 1ms)};
  const auto block = failure_block(ranks, {.program = "./train"});
  EXPECT_NE(block.find("out of memory"), std::string::npos) << block;
}

TEST(FailureBlock, HasTheReasonWhyAProgramWasNotExecuted) {
  std::vector ranks{ended(0, ExitStatus::exited(127), 1ms)};
  ranks[0].start_failure = StartFailure{StartFailure::Action::execute, ENOENT};
  const auto block = failure_block(ranks, {.cause = RunCause::not_found, .program = "trian"});
  EXPECT_NE(block.find("rank 0 on h1 could not execute trian: No such file or directory"),
            std::string::npos)
      << block;
  EXPECT_NE(block.find("next: check the name"), std::string::npos) << block;
}

TEST(FailureBlock, SaysThatAWorkerCouldNotBeForked) {
  std::vector ranks{ended(0, ExitStatus::exited(125), 1ms)};
  ranks[0].start_failure = StartFailure{StartFailure::Action::fork, EAGAIN};
  const auto block = failure_block(ranks, {.cause = RunCause::environment, .program = "train"});
  EXPECT_NE(
      block.find("rank 0 on h1 could not be forked: " + std::generic_category().message(EAGAIN)),
      std::string::npos)
      << block;
}

TEST(FailureBlock, HasTheNextStepWhenTheLoaderOrAShellDidNotExecuteTheProgram) {
  for (const int code : {126, 127}) {
    const std::vector ranks{ended(0, ExitStatus::exited(code), 1ms)};
    const auto block = failure_block(ranks, {.program = "./train"});
    EXPECT_NE(block.find("next: the program was not executed, so it is not restarted"),
              std::string::npos)
        << block;
    EXPECT_NE(block.find("`ldd ./train`"), std::string::npos) << block;
  }
  const std::vector ranks{ended(0, ExitStatus::exited(1), 1ms)};
  const auto block = failure_block(ranks, {.program = "./train"});
  EXPECT_EQ(block.find("was not executed"), std::string::npos) << block;
}

TEST(FailureBlock, ASignalToTheLauncherHasNoCulprit) {
  std::vector ranks{ended(0, ExitStatus::signaled(SIGINT), 1ms),
                    ended(1, ExitStatus::signaled(SIGINT), 1ms)};
  for (auto& rank : ranks) rank.told_to_end = true;
  const auto block = failure_block(ranks, {.cause = RunCause::signal, .signal = SIGINT});
  EXPECT_NE(block.find("SIGINT to the launcher ended the run"), std::string::npos) << block;
  EXPECT_NE(block.find("2 ranks 0,1: signal 2 (SIGINT) after the launcher"), std::string::npos)
      << block;
}

TEST(FailureBlock, AFinishedRunHasNone) {
  EXPECT_EQ(failure_block({}, {.cause = RunCause::finished}), "");
}

}  // namespace
}  // namespace lockstep
