#include "lockstep/checkpoint/stop_signals.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace lockstep {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGUSR2};
constexpr std::int64_t kSameRequestMs = 500;

// Signals are per process, and a handler has no context argument, so its state is global. So are
// the previous handlers, for the last StopSignals to restore.
constinit std::atomic<int> last_signal{0};
constinit std::atomic<std::int64_t> first_end_ms{0};  // time of the first INT or TERM; 0: none yet
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

struct Installed {
  std::mutex mutex;  // guards the members below; the handler reads `before`, set before it exists
  int num_users = 0;
  std::array<struct sigaction, kSignals.size()> before{};
};
constinit Installed installed;

std::int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// The signal is blocked while its handler runs: the raised signal is delivered after the return.
void act_as_before(int signal) {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal) ::sigaction(signal, &installed.before[i], nullptr);
  }
  ::raise(signal);
}

void on_signal(int signal) {
  const int error = errno;
  last_signal.store(signal, std::memory_order_relaxed);
  if (signal == SIGINT || signal == SIGTERM) {
    const auto now = milliseconds_now();
    std::int64_t first = 0;
    if (!first_end_ms.compare_exchange_strong(first, now) && now - first > kSameRequestMs) {
      act_as_before(signal);
    }
  }
  errno = error;
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(installed.mutex);
  if (installed.num_users++ > 0) return;
  last_signal = 0;
  first_end_ms = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &installed.before[i]);
  }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    const bool stays_ignored = kSignals[i] == SIGINT && installed.before[i].sa_handler == SIG_IGN;
    if (!stays_ignored) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(installed.mutex);
  if (--installed.num_users > 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &installed.before[i], nullptr);
  }
}

int StopSignals::received() const noexcept { return last_signal.load(std::memory_order_relaxed); }

}  // namespace lockstep
