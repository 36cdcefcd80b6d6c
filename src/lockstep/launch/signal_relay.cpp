#include "lockstep/launch/signal_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// A handler receives no pointer of ours; it finds the pipe here.
constinit std::atomic<int> relay_descriptor{-1};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // The pipe is full only when thousands of signals are unread: this one would add no information.
  [[maybe_unused]] const auto written = ::write(relay_descriptor, &byte, 1);
  errno = error;
}

// Unlike SIG_IGN, a handler is not inherited by the ranks: there these signals keep their default
// effect.
void on_write_signal(int) {}

bool stays_ignored(int signal, const struct sigaction& previous) {
  const bool by_terminal = signal == SIGINT || signal == SIGQUIT || signal == SIGHUP;
  return by_terminal && previous.sa_handler == SIG_IGN;
}

}  // namespace

SignalRelay::SignalRelay() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw SystemError("cannot create a pipe for signals", errno);
  }
  read_end_ = FileDescriptor(ends[0]);
  write_end_ = FileDescriptor(ends[1]);
  int none = -1;
  if (!relay_descriptor.compare_exchange_strong(none, write_end_.number())) {
    throw UsageError(
        "this process already runs workers, and a signal has one handler: run one job at a time");
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &previous_[i]);
    if (!stays_ignored(kSignals[i], previous_[i])) ::sigaction(kSignals[i], &action, nullptr);
  }
  action.sa_handler = on_write_signal;
  for (std::size_t i = 0; i < kWriteSignals.size(); ++i) {
    ::sigaction(kWriteSignals[i], nullptr, &previous_write_[i]);
    if (previous_write_[i].sa_handler != SIG_IGN) ::sigaction(kWriteSignals[i], &action, nullptr);
  }
}

SignalRelay::~SignalRelay() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &previous_[i], nullptr);
  }
  for (std::size_t i = 0; i < kWriteSignals.size(); ++i) {
    ::sigaction(kWriteSignals[i], &previous_write_[i], nullptr);
  }
  relay_descriptor = -1;
}

std::optional<int> SignalRelay::try_receive() const {
  for (;;) {
    unsigned char byte = 0;
    const auto count = ::read(read_end_.number(), &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    if (std::find(kSignals.begin(), kSignals.end(), byte) != kSignals.end()) return byte;
  }
}

}  // namespace lockstep
