// Ranks as processes: what users run, and what can be killed, stopped and lost.
//
// A call executes this test program again, once for each rank, with a filter for the current test.
// Each child runs the test from its beginning up to the same call, executes the body for its rank
// there, and exits: it never sees the rest of the test. So what stands before the call happens in
// every process, and what the body changes in captured variables is seen by that rank alone.
//
// A test may call it several times, one after the other. A child passes the calls before its own by
// giving the outcome (or the exception) that the parent had from them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/testing/rank.h"

namespace lockstep::testing {

class ChildProcess;

/// A handle on the ranks while they run, for the parent.
class RunningRanks {
 public:
  RunningRanks(const Board& board, std::span<const ChildProcess> children) noexcept
      : board_(board), children_(children) {}

  [[nodiscard]] int size() const noexcept;
  [[nodiscard]] pid_t pid(int rank) const;
  /// Throws PeerError when the rank has ended and can take no signal.
  void send_signal(int rank, int signal) const;
  /// Returns when the rank's last note is `text`; the body should stay there until something
  /// happens to it. Throws PeerError when the rank ends before or the deadline passes.
  void wait_for_note(int rank, std::string_view text, Deadline deadline) const;

 private:
  const Board& board_;
  std::span<const ChildProcess> children_;
};

enum class Expect {
  success,   // a rank that fails makes the call throw
  anything,  // how each rank ended is returned
};

struct ProcessesOptions {
  std::chrono::milliseconds limit{240'000};  // a run that takes longer is taken for a hang
  Expect expect = Expect::success;
  // Called once in the parent, on a thread of its own, when all ranks are started. What it throws
  // ends the ranks and is thrown by the call.
  std::function<void(const RunningRanks&)> meanwhile{};
};

/// How one rank ended: an exit code or a signal.
struct RankOutcome {
  std::optional<int> exit_code;  // 0: the body returned; 1: it threw, or an expectation failed
  std::optional<int> signal;
  bool returned = false;  // the body did; without it exit code 0 means that it exited on its own
  std::string output;     // the last 64 KiB of standard output and error

  [[nodiscard]] bool succeeded() const noexcept { return exit_code == 0 && returned; }
};

/// Runs `body` for each rank from 0 to `size` - 1, each in a process of its own.
/// Call it inside a GoogleTest test, on the test's thread, not inside a body or `meanwhile`.
/// A rank fails when its body throws, when a GoogleTest expectation fails in it, or when the
/// process ends by itself. Returns each rank's outcome when all have ended. Throws PeerError, with
/// every failed rank's end and last 20 lines of output, when one failed that should not have; and,
/// whatever is expected, with every rank's note, kernel state and output when the limit passes,
/// after the ranks have been killed. Ranks never outlive the calling process.
std::vector<RankOutcome> run_ranks_as_processes(int size, const std::function<void(Rank&)>& body,
                                                const ProcessesOptions& options = {});

}  // namespace lockstep::testing
