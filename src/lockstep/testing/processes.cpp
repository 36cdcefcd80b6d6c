#include "lockstep/testing/processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/testing/board_internal.h"
#include "lockstep/testing/child_process_internal.h"
#include "lockstep/testing/earlier_runs_internal.h"
#include "lockstep/testing/run_body_internal.h"
#include "lockstep/testing/thread_state_internal.h"
#include "lockstep/testing/watchdog.h"

namespace lockstep::testing {
namespace {

constexpr const char* kRankVariable = "LOCKSTEP_TEST_RANK";
constexpr const char* kCallVariable = "LOCKSTEP_TEST_CALL";
constexpr const char* kParentVariable = "LOCKSTEP_TEST_PARENT";
constexpr int kBoardDescriptor = ChildProcess::kFirstDescriptor;
constexpr int kEarlierDescriptor = ChildProcess::kFirstDescriptor + 1;
constexpr int kShownLines = 20;
constexpr std::chrono::seconds kCleanUpLimit{10};  // to kill, collect and report, after the limit

// What a child process was started for.
struct Assignment {
  int rank;
  int call;  // of run_ranks_as_processes in the test, counted from 1
  pid_t parent;
};

std::optional<Assignment> find_assignment(const Environment& environment) {
  const auto rank = environment.find_integer(kRankVariable);
  if (!rank) return std::nullopt;
  return Assignment{static_cast<int>(*rank),
                    static_cast<int>(environment.find_integer(kCallVariable).value_or(0)),
                    static_cast<pid_t>(environment.find_integer(kParentVariable).value_or(0))};
}

int num_failed_expectations() {
  const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  int count = 0;
  for (int i = 0; i < result.total_part_count(); ++i) {
    if (result.GetTestPartResult(i).failed()) ++count;
  }
  return count;
}

// The child: the body, then the end.
[[noreturn]] void play_and_exit(const Assignment& assignment,
                                const std::function<void(Rank&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != assignment.parent) {  // the parent died before PR_SET_PDEATHSIG was set
    fmt::print(stderr, "rank {} ends: process {}, which started it, has ended\n", assignment.rank,
               assignment.parent);
    ::_exit(1);
  }
  // Programs that the body executes inherit neither of them.
  for (const int inherited : {kBoardDescriptor, kEarlierDescriptor}) {
    ::fcntl(inherited, F_SETFD, FD_CLOEXEC);
  }
  std::setvbuf(stdout, nullptr, _IONBF, 0);  // so that the output of a killed rank is complete
  Board board{FileDescriptor(kBoardDescriptor)};
  const int failed_before = num_failed_expectations();
  const auto failure = failure_of_body(board, assignment.rank, body);
  const bool good = !failure && num_failed_expectations() == failed_before;
  if (failure) fmt::print(stderr, "rank {} failed: {}\n", assignment.rank, *failure);
  board.leave(assignment.rank, good ? RankState::finished : RankState::failed);
  std::fflush(nullptr);
  ::_exit(good ? 0 : 1);  // not exit: nothing of the parent's test is to be torn down here
}

std::vector<RankOutcome> repeat(const EarlierRun& run) {
  if (run.error) throw PeerError(run.error_rank, *run.error);
  return run.outcomes;
}

std::vector<std::string> arguments_for_this_test() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return {fmt::format("--gtest_filter={}.{}", test->test_suite_name(), test->name()),
          "--gtest_also_run_disabled_tests", "--gtest_repeat=1", "--gtest_brief=1",
          "--gtest_color=no"};
}

Environment environment_for_rank(int rank, int call) {
  auto environment = Environment::of_process();
  // A shard might leave this test out, and the files that these name are the parent's.
  for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE",
                           "GTEST_OUTPUT", "XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE"}) {
    environment.remove(name);
  }
  environment.set(kRankVariable, std::to_string(rank));
  environment.set(kCallVariable, std::to_string(call));
  environment.set(kParentVariable, std::to_string(::getpid()));
  return environment;
}

std::vector<ChildProcess> start_ranks(const Board& board, int call) {
  const auto earlier = earlier_runs_as_file();
  const std::array<int, 2> descriptors{board.descriptor(), earlier.number()};
  std::vector<ChildProcess> children;
  children.reserve(static_cast<std::size_t>(board.size()));
  for (int rank = 0; rank < board.size(); ++rank) {
    children.emplace_back(arguments_for_this_test(), environment_for_rank(rank, call), descriptors);
  }
  return children;
}

std::string shown_output(const ChildProcess& child) {
  if (child.output().empty()) return "    (it wrote nothing)\n";
  return indented(last_lines(child.output(), kShownLines), "    | ");
}

PeerError hang_error(const Board& board, std::span<const ChildProcess> children,
                     std::chrono::milliseconds limit) {
  int first = -1;
  int count = 0;
  std::string text;
  for (int rank = 0; rank < board.size(); ++rank) {
    const auto& child = children[static_cast<std::size_t>(rank)];
    if (!child.end() && count++ == 0) first = rank;
    text +=
        fmt::format("rank {}, process {}: {}\n  {}\n{}", rank, child.pid(),
                    child.end() ? describe(*child.end()) : kernel_state(child.pid(), child.pid()),
                    describe_rank(board, rank), shown_output(child));
  }
  return {first, fmt::format("{} of {} ranks did not end within {} ms and were killed:\n{}", count,
                             board.size(), limit.count(), text)};
}

// Calls options.meanwhile. If it throws, the ranks are killed, so that the parent does not wait.
class Meanwhile {
 public:
  Meanwhile(const ProcessesOptions& options, const Board& board,
            std::span<const ChildProcess> children) {
    if (!options.meanwhile) return;
    thread_ = std::jthread([this, &options, &board, children] {
      try {
        options.meanwhile(RunningRanks(board, children));
      } catch (...) {
        error_ = std::current_exception();
        for (const auto& child : children) (void)child.try_send(SIGKILL);
      }
    });
  }

  void join() {
    if (thread_.joinable()) thread_.join();
  }
  // Only once joined.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;  // the thread's until it is joined
  std::jthread thread_;
};

void attend_to_ranks(Board& board, std::vector<ChildProcess>& children,
                     const ProcessesOptions& options) {
  Meanwhile meanwhile(options, board, children);
  // A process that was killed cannot leave the board itself, and the others may be waiting for it
  // there.
  const auto leave_for = [&](std::size_t index) {
    const int rank = static_cast<int>(index);
    const RankState state = board.state(rank);
    if (state == RankState::finished || state == RankState::failed) return;
    board.leave(rank, RankState::failed);
  };
  std::optional<PeerError> hang;
  if (!attend_until_ended(children, board.deadline(), leave_for)) {
    hang = hang_error(board, children, options.limit);
    for (const auto& child : children) (void)child.try_send(SIGKILL);
    (void)attend_until_ended(children, Deadline::after(kCleanUpLimit), leave_for);
  }
  meanwhile.join();
  if (hang) throw PeerError(*hang);
  meanwhile.rethrow();
}

std::vector<RankOutcome> outcomes_of(const Board& board,
                                     const std::vector<ChildProcess>& children) {
  std::vector<RankOutcome> outcomes;
  for (int rank = 0; rank < board.size(); ++rank) {
    const auto& child = children[static_cast<std::size_t>(rank)];
    outcomes.push_back({child.end()->exit_code, child.end()->signal,
                        board.state(rank) == RankState::finished, child.output()});
  }
  return outcomes;
}

void throw_if_any_failed(const Board& board, const std::vector<ChildProcess>& children,
                         const std::vector<RankOutcome>& outcomes) {
  int first = -1;
  int count = 0;
  std::string text;
  for (int rank = 0; rank < board.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (outcomes[index].succeeded()) continue;
    if (count++ == 0) first = rank;
    text += fmt::format("rank {}, process {}: {}{}\n  {}\n{}", rank, children[index].pid(),
                        describe(*children[index].end()),
                        outcomes[index].exit_code == 0 ? " without returning from the body" : "",
                        describe_rank(board, rank), shown_output(children[index]));
  }
  if (count == 0) return;
  throw PeerError(first, fmt::format("{} of {} ranks failed:\n{}", count, board.size(), text));
}

// The parent.
std::vector<RankOutcome> run_children(int size, int call, const ProcessesOptions& options) {
  Board board(size, Deadline::after(options.limit));
  const Watchdog dog(options.limit + kCleanUpLimit, [&] {
    return fmt::format(
        "Its ranks have ended or were killed, but ProcessesOptions::meanwhile of call {} "
        "in this test has not returned.",
        call);
  });
  auto children = start_ranks(board, call);
  attend_to_ranks(board, children, options);
  auto outcomes = outcomes_of(board, children);
  if (options.expect == Expect::success) throw_if_any_failed(board, children, outcomes);
  return outcomes;
}

}  // namespace

int RunningRanks::size() const noexcept { return static_cast<int>(children_.size()); }

pid_t RunningRanks::pid(int rank) const { return children_[static_cast<std::size_t>(rank)].pid(); }

void RunningRanks::send_signal(int rank, int signal) const {
  if (children_[static_cast<std::size_t>(rank)].try_send(signal)) return;
  throw PeerError(
      rank, fmt::format("rank {} has ended and cannot be sent signal {}: make its body wait for it",
                        rank, signal));
}

void RunningRanks::wait_for_note(int rank, std::string_view text, Deadline deadline) const {
  board_.wait_for_note(rank, text, deadline);
}

std::vector<RankOutcome> run_ranks_as_processes(int size, const std::function<void(Rank&)>& body,
                                                const ProcessesOptions& options) {
  const int call = begin_run();
  if (const auto assignment = find_assignment(Environment::of_process())) {
    if (call == assignment->call) play_and_exit(*assignment, body);
    const auto earlier = earlier_run_from_file(kEarlierDescriptor, call);
    end_run(call, earlier);
    return repeat(earlier);
  }
  try {
    auto outcomes = run_children(size, call, options);
    end_run(call, {.outcomes = outcomes, .error = {}, .error_rank = -1});
    return outcomes;
  } catch (const PeerError& error) {
    end_run(call, {.outcomes = {}, .error = error.what(), .error_rank = error.rank()});
    throw;
  } catch (const std::exception& error) {
    end_run(call, {.outcomes = {}, .error = error.what(), .error_rank = -1});
    throw;
  }
}

bool is_rank_process() { return find_assignment(Environment::of_process()).has_value(); }

}  // namespace lockstep::testing
