// The exit status of a process, and the exit code of the launcher that follows from it.
//
// The launcher's codes (programs use 1 to 123): the code of the first failed rank, 128 + n for
// signal n; 125: the machine, the configuration or the rendezvous failed; 126: the program is not
// executable; 127: it was not found; 2: invalid usage, before any worker was started.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// For example "SIGKILL"; "SIG?" for a signal without a name, such as real-time signals.
[[nodiscard]] std::string signal_name(int signal);

/// How a process ended: with an exit code, or by a signal.
class ExitStatus {
 public:
  /// `raw` is the status of waitpid(2).
  explicit ExitStatus(int raw) noexcept : raw_(raw) {}
  [[nodiscard]] static ExitStatus exited(int code) noexcept;
  [[nodiscard]] static ExitStatus signaled(int signal) noexcept;

  [[nodiscard]] bool succeeded() const noexcept { return raw_ == 0; }
  [[nodiscard]] std::optional<int> exit_code() const noexcept;
  [[nodiscard]] std::optional<int> signal() const noexcept;
  [[nodiscard]] bool dumped_core() const noexcept;
  [[nodiscard]] int raw() const noexcept { return raw_; }
  /// As in a shell: the exit code, or 128 + n for signal n.
  [[nodiscard]] int shell_code() const noexcept;
  /// For example "exit code 3", "signal 11 (SIGSEGV, core dumped)".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;

 private:
  int raw_;
};

/// Why a run ended.
enum class RunCause {
  finished,        // every rank ended with exit code 0
  rank_failed,     // a rank ended otherwise, without a signal from the launcher
  not_executable,  // the program exists but is not executable
  not_found,       // the program does not exist
  signal,          // a signal ended the launcher, and not every rank ended with exit code 0
  peer_node,       // the launcher of another node reported the failure
  environment,     // the machine, the configuration or the rendezvous failed
  usage,           // invalid usage, before any worker was started
};

/// Stable words for records, for example "rank_failed".
[[nodiscard]] std::string describe(RunCause cause);

/// Whether an exit code, 126 or 127, means that the program was not executed. The dynamic loader
/// ends with 127 when a shared library is missing; a shell ends with one of them for a command that
/// it cannot start.
[[nodiscard]] bool says_not_executed(int exit_code) noexcept;

/// The facts that determine the launcher's exit code.
struct ExitFacts {
  RunCause cause = RunCause::finished;
  std::optional<ExitStatus> culprit = {};  // of the first failed rank, on any node
  int signal = 0;                          // the signal that ended the launcher
};

[[nodiscard]] int launcher_exit_code(const ExitFacts& facts) noexcept;

}  // namespace lockstep
