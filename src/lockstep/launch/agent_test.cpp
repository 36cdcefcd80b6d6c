#include "lockstep/launch/agent.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/run_folder.h"
#include "lockstep/launch/test_process_census_internal.h"
#include "lockstep/testing/crashes.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AgentTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(processes_with_token(token_).size(), 0u) << "a worker outlives its round";
    std::filesystem::remove_all(folder_.path());
  }

  AgentOptions options(int size, std::vector<std::string> command) const {
    AgentOptions result{.command = std::move(command), .host = "here", .logs = folder_.logs_path()};
    auto user = Environment::of_process();
    user.set(kCensusVariable, token_);
    for (int rank = 0; rank < size; ++rank) {
      const WorkerIdentity identity{
          .rank = rank, .size = size, .local_rank = rank, .local_size = size};
      result.workers.push_back(
          {.identity = identity, .environment = worker_environment(user, {.identity = identity})});
    }
    result.limits = {.report = 200ms, .grace = 400ms};
    result.look = 50ms;
    return result;
  }

  AgentOptions shell(int size, const std::string& script) const {
    return options(size, {"/bin/sh", "-c", script});
  }

  // Runs a round while `meanwhile` runs on another thread.
  RoundOutcome run(AgentOptions agent_options, AgentHooks hooks = {},
                   const std::function<void(Agent&)>& meanwhile = {}) {
    const int size = static_cast<int>(agent_options.workers.size());
    Console console(
        {.size = size, .local_size = size, .output = paper_.number(), .error = paper_.number()});
    const SignalRelay relay;
    Agent agent(std::move(agent_options), relay, console, std::move(hooks));
    std::jthread other;
    if (meanwhile) other = std::jthread([&] { meanwhile(agent); });
    auto outcome = agent.run();
    if (other.joinable()) other.join();
    EXPECT_TRUE(console.finish(Deadline::after(10s)));
    return outcome;
  }

  // The output of the console so far.
  std::string shown() const {
    std::string text(1 << 22, '\0');
    const auto count = ::pread(paper_.number(), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }

  bool wait_until_shown(const std::string& text) const {
    const auto deadline = Deadline::after(10s);
    while (shown().find(text) == std::string::npos && !deadline.expired()) {
      std::this_thread::sleep_for(2ms);
    }
    return !deadline.expired();
  }

  std::string log_of(int rank) const { return whole_file(log_path(folder_.logs_path(), rank, 0)); }

  const std::string token_ =
      census_token(::testing::UnitTest::GetInstance()->current_test_info()->name());
  const RunFolder folder_ = RunFolder::create(std::filesystem::temp_directory_path() /
                                              ("lockstep-agent-" + random_token()));
  const FileDescriptor paper_{::memfd_create("console", MFD_CLOEXEC)};
};

TEST_F(AgentTest, ARoundInWhichEveryRankFinishesIsFinished) {
  std::vector<int> ended;
  const auto outcome =
      run(shell(3, "echo I am $RANK of $WORLD_SIZE"),
          {.rank_ended = [&](const RankOutcome& rank) { ended.push_back(rank.rank); }});
  EXPECT_EQ(outcome.cause, RunCause::finished);
  EXPECT_EQ(ended.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcome.ranks[static_cast<std::size_t>(rank)].status, ExitStatus::exited(0));
    EXPECT_EQ(log_of(rank), "I am " + std::to_string(rank) + " of 3\n");
  }
  EXPECT_NE(shown().find("2 | I am 2 of 3\n"), std::string::npos) << shown();
}

TEST_F(AgentTest, ALastLineWithoutAnEndIsShownOnBothStreams) {
  const auto outcome = run(shell(1, "printf cut; printf 'cut too' >&2"));
  EXPECT_EQ(outcome.cause, RunCause::finished);
  EXPECT_NE(shown().find("0 | cut\n"), std::string::npos) << shown();
  EXPECT_NE(shown().find("0 | cut too\n"), std::string::npos) << shown();
}

TEST_F(AgentTest, ARankThatFinishesEarlyEndsNoOther) {
  // Rank 1 works for longer than the time that ranks have to report after a failure.
  const auto outcome = run(shell(2, "[ $RANK = 0 ] || { sleep 1; echo done; }"));
  EXPECT_EQ(outcome.cause, RunCause::finished);
  EXPECT_EQ(outcome.ranks[1].status, ExitStatus::exited(0));
  EXPECT_FALSE(outcome.ranks[1].told_to_end);
  EXPECT_EQ(log_of(1), "done\n");
}

TEST_F(AgentTest, TheFirstRankToFailIsTheCulpritAndTheOthersAreEnded) {
  const auto outcome = run(shell(4, "[ $RANK = 2 ] && { echo oh no; exit 42; }; exec sleep 100"));
  EXPECT_EQ(outcome.cause, RunCause::rank_failed);
  ASSERT_EQ(find_culprit(outcome.ranks), 2u);
  EXPECT_EQ(outcome.ranks[2].status, ExitStatus::exited(42));
  EXPECT_EQ(outcome.ranks[2].last_lines, std::vector<std::string>{"oh no"});
  for (const std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(outcome.ranks[rank].status, ExitStatus::signaled(SIGTERM));
    EXPECT_TRUE(outcome.ranks[rank].told_to_end);
  }
  EXPECT_GE(outcome.lasted, 200ms) << "the others had no time to report";
}

TEST_F(AgentTest, RanksThatFailInConsequenceGetNoSignalAndAreNotTheCulprit) {
  auto round = shell(2, "[ $RANK = 1 ] && kill -9 $$; sleep 0.05; exit 1");
  round.limits.report = 20s;  // the round ends as soon as all have ended
  const auto outcome = run(std::move(round));
  ASSERT_EQ(find_culprit(outcome.ranks), 1u);
  EXPECT_EQ(outcome.ranks[1].status, ExitStatus::signaled(SIGKILL));
  EXPECT_FALSE(outcome.ranks[0].told_to_end);
}

TEST_F(AgentTest, AWorkerThatIgnoresTermIsKilledAfterTheGrace) {
  const auto outcome = run(shell(2,
                                 "[ $RANK = 0 ] && { sleep 0.1; exit 3; }; trap '' TERM; sleep 100 "
                                 "& while :; do sleep 0.1; done"));
  EXPECT_EQ(outcome.ranks[1].status, ExitStatus::signaled(SIGKILL));
  EXPECT_GE(outcome.lasted, 600ms);
  EXPECT_LT(outcome.lasted, 10s);
}

TEST_F(AgentTest, ASignalIsForwardedAndRanksThatThenSucceedMakeTheRunFinished) {
  const auto outcome =
      run(shell(2, "trap 'echo saved; exit 0' TERM; echo up $RANK; while :; do sleep 0.02; done"),
          {}, [&](Agent& /*agent*/) {
            EXPECT_TRUE(wait_until_shown("up 0") && wait_until_shown("up 1"));
            ::kill(::getpid(), SIGTERM);
          });
  EXPECT_EQ(outcome.cause, RunCause::finished);
  EXPECT_EQ(outcome.signal, SIGTERM);
  EXPECT_EQ(log_of(1), "up 1\nsaved\n");
}

TEST_F(AgentTest, RanksThatDieOfTheForwardedSignalMakeTheSignalTheCause) {
  const auto outcome = run(shell(2, "echo up $RANK; exec sleep 100"), {}, [&](Agent& /*agent*/) {
    EXPECT_TRUE(wait_until_shown("up 0") && wait_until_shown("up 1"));
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(outcome.cause, RunCause::signal);
  EXPECT_EQ(outcome.signal, SIGINT);
  EXPECT_EQ(find_culprit(outcome.ranks), std::nullopt);
}

TEST_F(AgentTest, ASecondCtrlCKillsNow) {
  auto round = shell(2, "trap '' INT; echo up $RANK; while :; do sleep 0.02; done");
  round.limits.grace = 100s;
  const auto outcome = run(std::move(round), {}, [&](Agent& /*agent*/) {
    EXPECT_TRUE(wait_until_shown("up 0") && wait_until_shown("up 1"));
    ::kill(::getpid(), SIGINT);
    EXPECT_TRUE(wait_until_shown("SIGINT is forwarded"));
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(outcome.cause, RunCause::signal);
  EXPECT_EQ(outcome.ranks[0].status, ExitStatus::signaled(SIGKILL));
  EXPECT_LT(outcome.lasted, 20s);
}

TEST_F(AgentTest, UserSignalsAreForwardedAndEndNothing) {
  const auto outcome = run(shell(1,
                                 "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; echo up; "
                                 "while :; do sleep 0.02; done"),
                           {}, [&](Agent& /*agent*/) {
                             EXPECT_TRUE(wait_until_shown("up"));
                             ::kill(::getpid(), SIGUSR1);
                             EXPECT_TRUE(wait_until_shown("one"));
                             ::kill(::getpid(), SIGUSR2);
                           });
  EXPECT_EQ(outcome.cause, RunCause::finished);
  EXPECT_EQ(outcome.signal, 0);
}

TEST_F(AgentTest, AStoppedRankIsNamedAndNamedAgainWhenItContinues) {
  std::vector<bool> stops;
  const auto outcome = run(shell(2, "[ $RANK = 1 ] && kill -STOP $$; echo on $RANK"),
                           {.rank_stopped =
                                [&](int rank, bool is_stopped) {
                                  EXPECT_EQ(rank, 1);
                                  stops.push_back(is_stopped);
                                }},
                           [&](Agent& /*agent*/) {
                             const std::string words = "rank 1 on here is stopped (process ";
                             ASSERT_TRUE(wait_until_shown(words));
                             const auto text = shown();
                             const pid_t pid =
                                 std::stoi(text.substr(text.find(words) + words.size()));
                             ::kill(pid, SIGCONT);
                           });
  EXPECT_EQ(outcome.cause, RunCause::finished);
  ASSERT_FALSE(stops.empty());
  EXPECT_TRUE(stops[0]);
}

TEST_F(AgentTest, AMissingProgramAndOneThatIsNotExecutableAreDistinguished) {
  EXPECT_EQ(run(options(2, {"lockstep-no-such-program"})).cause, RunCause::not_found);
  auto second = options(1, {"/etc/passwd"});
  second.restarts = 1;
  const auto outcome = run(std::move(second));
  EXPECT_EQ(outcome.cause, RunCause::not_executable);
  EXPECT_EQ(outcome.ranks[0].start_failure->error_number, EACCES);
}

TEST_F(AgentTest, AnotherNodesFailureEndsTheRound) {
  const auto outcome = run(shell(2, "exec sleep 100"), {}, [](Agent& agent) {
    agent.request_stop("rank 7 on there failed");
    agent.request_stop("a later reason");
  });
  EXPECT_EQ(outcome.cause, RunCause::peer_node);
  EXPECT_EQ(outcome.stop_reason, "rank 7 on there failed");
  EXPECT_EQ(outcome.ranks[0].status, ExitStatus::signaled(SIGTERM));
}

TEST_F(AgentTest, TheSecretIsPassedByItsDescriptor) {
  const FileDescriptor secret(::memfd_create("secret", MFD_CLOEXEC));
  ASSERT_EQ(::write(secret.number(), "abc\n", 4), 4);
  auto round = shell(2, "cat /proc/self/fd/$LOCKSTEP_SECRET_FD");
  round.secret = secret.number();
  EXPECT_EQ(run(std::move(round)).cause, RunCause::finished);
  EXPECT_EQ(log_of(0) + log_of(1), "abc\nabc\n");
}

volatile std::uintptr_t bad_address = 0x18;
volatile int sink = 0;

LOCKSTEP_CRASHES void crash_in_a_worker() {
  *reinterpret_cast<volatile int*>(bad_address) = 1;  // NOLINT(performance-no-int-to-ptr)
  sink = 1;
}

// The next test executes this as a worker; otherwise it does nothing.
TEST(CrashingWorker, CrashesWhenAnAgentStartsIt) {
  const auto descriptor = Environment::of_process().find_integer(Agent::kCrashVariable);
  if (!descriptor) return;
  const CrashHandler handler(static_cast<int>(*descriptor));
  crash_in_a_worker();
}

TEST_F(AgentTest, ACrashIsExplainedWithTheNameOfTheFunction) {
  const auto outcome = run(options(1, {std::filesystem::read_symlink("/proc/self/exe").string(),
                                       "--gtest_filter=CrashingWorker.*"}));
  EXPECT_EQ(outcome.ranks[0].status->signal(), SIGSEGV);
  ASSERT_GE(outcome.ranks[0].stack.size(), 2u) << outcome.ranks[0].crash_record;
  EXPECT_NE(outcome.ranks[0].stack[1].find("crash_in_a_worker"), std::string::npos)
      << outcome.ranks[0].stack[1];
  EXPECT_NE(failure_block(outcome.ranks, {.cause = outcome.cause}).find("#0 "), std::string::npos);
}

// 40 MB in the unit test; 200 MB in a soak.
TEST_F(AgentTest, EveryByteOf8RanksIsInTheirLogsInOrder) {
  const bool soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED").has_value();
  const int num_lines = soak ? 3'125'000 / 4 : 156'250;  // of 32 bytes
  const auto script = "awk -v r=$RANK 'BEGIN { for (i = 0; i < " + std::to_string(num_lines) +
                      R"(; ++i) printf "rank %d line %08d of many more\n", r, i }')";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run(shell(8, script)).cause, RunCause::finished);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::size_t bytes = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const auto log = log_of(rank);
    bytes += log.size();
    std::string expected;
    expected.reserve(log.size());
    std::array<char, 64> line{};
    for (int i = 0; i < num_lines; ++i) {
      const int length =
          std::snprintf(line.data(), line.size(), "rank %d line %08d of many more\n", rank, i);
      expected.append(line.data(), static_cast<std::size_t>(length));
    }
    EXPECT_TRUE(log == expected) << "the log of rank " << rank << " differs";
  }
  std::printf("%.0f MB in %.2f s\n", static_cast<double>(bytes) / 1e6, took.count());
}

TEST_F(AgentTest, SixtyFourRanksStartAndEnd) {
  const auto outcome = run(options(64, {"/bin/true"}));
  EXPECT_EQ(outcome.cause, RunCause::finished);
  std::printf("64 ranks in %lld ms\n", static_cast<long long>(outcome.lasted.count()));
}

TEST_F(AgentTest, AnEmptyCommandOrNoRankIsRefused) {
  Console console({.error = paper_.number()});
  const SignalRelay relay;
  EXPECT_THROW(Agent(options(1, {}), relay, console), UsageError);
  EXPECT_THROW(Agent(options(0, {"true"}), relay, console), UsageError);
}

}  // namespace
}  // namespace lockstep
