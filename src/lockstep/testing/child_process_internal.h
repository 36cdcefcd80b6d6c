// A child process that runs this same program again, its output, and its end. The child is spawned,
// never forked without exec: a forked copy of a process with threads, as every process with
// LibTorch is, may call next to nothing. It inherits its standard streams and the descriptors it is
// given, nothing else.
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

/// How a process ended: by itself or by a signal.
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

  /// Executes this program with `arguments`; standard input is empty, standard output and error
  /// come here. Throws SystemError.
  ChildProcess(const std::vector<std::string>& arguments, const Environment& environment,
               std::span<const int> descriptors = {});
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Kills it if it runs, and collects it.
  ~ChildProcess();

  /// False when it has ended and been collected. Any thread may call this; the number of the
  /// process cannot have gone to another one meanwhile.
  [[nodiscard]] bool try_send(int signal) const;
  /// Reads the output that is there and notices its end, without waiting.
  void attend();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Nothing while it runs.
  [[nodiscard]] const std::optional<ProcessEnd>& end() const noexcept { return end_; }
  /// The last 64 KiB or somewhat more of its standard output and error, in the order it wrote them.
  [[nodiscard]] const std::string& output() const noexcept { return output_; }
  /// Readable when it has ended; and when there is output (closed once there can be no more).
  [[nodiscard]] int end_descriptor() const noexcept { return process_.number(); }
  [[nodiscard]] int output_descriptor() const noexcept { return pipe_.number(); }

 private:
  void read_output();

  pid_t pid_ = -1;
  FileDescriptor process_;  // a pidfd
  FileDescriptor pipe_;     // where its output arrives; non-blocking
  std::string output_;
  std::optional<ProcessEnd> end_;
};

/// Attends to all of them until they have ended, and calls `ended` with the index of each that has,
/// once or more. Returns false when `deadline` passes first.
[[nodiscard]] bool attend_until_ended(std::span<ChildProcess> children, Deadline deadline,
                                      const std::function<void(std::size_t)>& ended = {});

/// The last `count` lines of `text`.
[[nodiscard]] std::string last_lines(const std::string& text, int count);

}  // namespace lockstep::testing
