// A child process that executes this program again, its output, and its end. The child is spawned,
// never forked without exec: a forked copy of a process with threads, which every process with
// LibTorch is, may call async-signal-safe functions only. The child inherits its standard streams
// and the descriptors that it is given, no others.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep::testing {

/// How a process ended: it exited, or a signal killed it.
struct ProcessEnd {
  std::optional<int> exit_code;
  std::optional<int> signal;
};

/// For example "ended with exit code 3", "was killed by signal 9 (SIGKILL)".
[[nodiscard]] std::string describe(const ProcessEnd& end);

class ChildProcess {
 public:
  static constexpr int kFirstDescriptor =
      3;  // in the child: descriptors[0] is 3, [1] is 4, and so on

  /// Executes this program with `arguments`. Standard input is empty; standard output and error
  /// are collected in output(). Throws SystemError.
  ChildProcess(const std::vector<std::string>& arguments, const Environment& environment,
               std::span<const int> descriptors = {});
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills the process if it still runs, and reaps it.
  ~ChildProcess();

  /// Returns false when the process has ended and was reaped. Any thread may call this. The signal
  /// never reaches another process with the same number: it is sent through a pidfd.
  [[nodiscard]] bool try_send(int signal) const;
  /// Reads the available output and checks whether the process has ended, without waiting.
  void attend();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// nullopt while the process runs.
  [[nodiscard]] const std::optional<ProcessEnd>& end() const noexcept { return end_; }
  /// At least the last 64 KiB of its standard output and error, in the order of writing.
  [[nodiscard]] const std::string& output() const noexcept { return output_; }
  /// Readable when the process has ended; readable when there is output, -1 after its end.
  [[nodiscard]] int end_descriptor() const noexcept { return process_.number(); }
  [[nodiscard]] int output_descriptor() const noexcept { return pipe_.number(); }

 private:
  void read_output();

  pid_t pid_ = -1;
  FileDescriptor process_;  // a pidfd
  FileDescriptor pipe_;     // receives the output; non-blocking
  std::string output_;
  std::optional<ProcessEnd> end_;
};

/// Calls attend() for all children until they have ended. Calls `ended` with the index of each
/// child that has ended, at least once. Returns false when `deadline` expires first.
[[nodiscard]] bool attend_until_ended(std::span<ChildProcess> children, Deadline deadline,
                                      const std::function<void(std::size_t)>& ended = {});

/// The last `count` lines of `text`.
[[nodiscard]] std::string last_lines(const std::string& text, int count);

}  // namespace lockstep::testing
