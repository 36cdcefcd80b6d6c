// Turns signals to this process into bytes on a descriptor that a loop can wait for.
//
// Handlers and a pipe instead of signalfd(2): the launcher may be a program with threads that were
// started before (LibTorch's), and a signal goes to any thread that does not block it.
#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class SignalRelay {
 public:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  /// A closed pipe and a file that reaches the size limit: errors of write(2) for a launcher, not
  /// reasons to end with all its ranks.
  static constexpr std::array kWriteSignals{SIGPIPE, SIGXFSZ};

  /// From here on, kSignals are relayed and kWriteSignals have no effect. INT, QUIT and HUP stay
  /// ignored where they are (nohup, and shells' background jobs, want it so). Throws UsageError
  /// when the process has a SignalRelay already, SystemError without descriptors.
  SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;
  /// Puts back the handlers of before.
  ~SignalRelay();

  /// The next signal that has come, if any.
  [[nodiscard]] std::optional<int> try_receive() const;
  /// Readable when one has.
  [[nodiscard]] int descriptor() const noexcept { return read_end_.number(); }

 private:
  FileDescriptor read_end_;
  FileDescriptor write_end_;
  std::array<struct sigaction, kSignals.size()> previous_{};  // in the order of kSignals
  std::array<struct sigaction, kWriteSignals.size()> previous_write_{};
};

}  // namespace lockstep
