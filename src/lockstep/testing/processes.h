// Ranks as processes, as users run them: a test can kill, stop and lose them.
//
// A call executes this test program again, once for each rank, with a filter for the current test.
// Each child runs the test from its beginning up to the same call, executes the body for its rank,
// and exits; it does not run the statements after the call. So the statements before the call run
// in every process, and a change of a captured variable in the body is visible on that rank only.
//
// A test may make several calls, one after the other. In a child, the calls before its own return
// the outcomes (or throw the exception) that they had in the parent.
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
  /// Throws PeerError when the rank has ended.
  void send_signal(int rank, int signal) const;
  /// Returns when the last note of the rank is `text`. The body should wait after this note.
  /// Throws PeerError when the rank ends first or the deadline expires.
  void wait_for_note(int rank, std::string_view text, Deadline deadline) const;

 private:
  const Board& board_;
  std::span<const ChildProcess> children_;
};

enum class Expect {
  success,   // the call throws when a rank fails
  anything,  // the call returns how each rank ended
};

struct ProcessesOptions {
  std::chrono::milliseconds limit{240'000};  // a run that takes longer counts as a hang
  Expect expect = Expect::success;
  // Called once in the parent, on a thread of its own, when all ranks are started. If it throws,
  // the ranks are killed and the call throws the same exception.
  std::function<void(const RunningRanks&)> meanwhile{};
};

/// How one rank ended: an exit code or a signal.
struct RankOutcome {
  std::optional<int> exit_code;  // 0: the body returned; 1: it threw, or an expectation failed
  std::optional<int> signal;
  bool returned = false;  // the body returned; false with exit code 0: the body called exit
  std::string output;     // the last 64 KiB of standard output and error

  [[nodiscard]] bool succeeded() const noexcept { return exit_code == 0 && returned; }
};

/// Runs `body` for each rank from 0 to `size` - 1, each in a process of its own.
/// Call it inside a GoogleTest test, on the test's thread, not inside a body or `meanwhile`.
/// A rank fails when its body throws, when a GoogleTest expectation fails in it, or when its
/// process ends before the body returns. Ranks never outlive the calling process.
/// Returns the outcome of each rank when all have ended.
/// Throws PeerError when a rank has failed and Expect::success was set; the message has the end and
/// the last 20 lines of output of each failed rank. Throws PeerError, whatever is expected, when
/// the limit expires: the ranks are killed, and the message has the note, kernel state and output
/// of each rank.
std::vector<RankOutcome> run_ranks_as_processes(int size, const std::function<void(Rank&)>& body,
                                                const ProcessesOptions& options = {});

/// Whether the calling process is a rank of such a run.
[[nodiscard]] bool is_rank_process();

}  // namespace lockstep::testing
