// How a process ended, and with which code the launcher ends because of it.
//
// The launcher's codes (the programs own 1 to 123): the first failed rank's code, 128 + n for
// signal n; 125 the environment or the rendezvous failed, 126 the program
// cannot be executed, 127 it was not found, 2 wrong usage before any worker was started.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// For example "SIGKILL"; "SIG?" for a number without a name, as real-time signals are.
[[nodiscard]] std::string signal_name(int signal);

/// How a process ended: by itself with an exit code, or by a signal.
class ExitStatus {
 public:
  /// `raw` is what waitpid(2) stores.
  explicit ExitStatus(int raw) noexcept : raw_(raw) {}
  [[nodiscard]] static ExitStatus exited(int code) noexcept;
  [[nodiscard]] static ExitStatus signaled(int signal) noexcept;

  [[nodiscard]] bool succeeded() const noexcept { return raw_ == 0; }
  [[nodiscard]] std::optional<int> exit_code() const noexcept;
  [[nodiscard]] std::optional<int> signal() const noexcept;
  [[nodiscard]] bool dumped_core() const noexcept;
  [[nodiscard]] int raw() const noexcept { return raw_; }
  /// As a shell has it: the exit code, or 128 + n for signal n.
  [[nodiscard]] int shell_code() const noexcept;
  /// For example "exit code 3", "signal 11 (SIGSEGV, core dumped)".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;

 private:
  int raw_;
};

/// Why a run is over.
enum class RunCause {
  finished,        // every rank ended with exit code 0
  rank_failed,     // one ended otherwise, by itself
  not_executable,  // the program is there and cannot be executed
  not_found,       // the program is not there
  signal,          // the launcher was told to end by a signal, and not every rank ended with 0
  peer_node,       // another node's launcher reported the failure
  environment,     // the machine, the set-up or the rendezvous failed
  usage,           // wrong usage, before any worker was started
};

/// Stable words for records, for example "rank_failed".
[[nodiscard]] std::string describe(RunCause cause);

/// Whether a program's exit code, 126 or 127, says that it was not executed. The dynamic loader
/// ends with 127 when a shared library is missing, a shell with either for a program it cannot
/// start.
[[nodiscard]] bool says_not_executed(int exit_code) noexcept;

/// What the launcher's code depends on, beside the cause.
struct ExitFacts {
  RunCause cause = RunCause::finished;
  std::optional<ExitStatus> culprit = {};  // of the first failed rank, on whichever node
  int signal = 0;                          // the one that told the launcher to end
};

[[nodiscard]] int launcher_exit_code(const ExitFacts& facts) noexcept;

}  // namespace lockstep
