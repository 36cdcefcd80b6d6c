// Turns signals to this process into bytes on a descriptor, for an event loop.
//
// It uses handlers and a pipe, not signalfd(2): the launcher may be a program that already has
// threads (those of LibTorch), and a signal is delivered to any thread that does not block it.
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
  /// The signals of a closed pipe and of a file at its size limit. For a launcher they are errors
  /// of write(2), not reasons to end all ranks.
  static constexpr std::array kWriteSignals{SIGPIPE, SIGXFSZ};

  /// While this lives, kSignals are relayed and kWriteSignals have no effect. INT, QUIT and HUP
  /// stay ignored if they are ignored (by nohup, or for background jobs of shells). Throws
  /// UsageError when the process already has a SignalRelay, SystemError when no descriptor is
  /// available.
  SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;
  /// Restores the previous handlers.
  ~SignalRelay();

  /// The next received signal; nullopt without one.
  [[nodiscard]] std::optional<int> try_receive() const;
  /// The descriptor, for poll(2): readable when a signal was received.
  [[nodiscard]] int descriptor() const noexcept { return read_end_.number(); }

 private:
  FileDescriptor read_end_;
  FileDescriptor write_end_;
  std::array<struct sigaction, kSignals.size()> previous_{};  // in the order of kSignals
  std::array<struct sigaction, kWriteSignals.size()> previous_write_{};
};

}  // namespace lockstep
