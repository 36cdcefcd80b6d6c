#include "lockstep/checkpoint/stop_signals.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace lockstep {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

// Signals belong to the process, and a handler is called with nothing of ours: what it notes has to
// be found here. So must be what was installed before, for whoever is the last to leave.
constinit std::atomic<int> last_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

struct Installed {
  std::mutex mutex;  // guards what follows
  int num_users = 0;
  std::array<struct sigaction, kSignals.size()> before{};
};
constinit Installed installed;

void on_signal(int signal) { last_signal.store(signal, std::memory_order_relaxed); }

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(installed.mutex);
  if (installed.num_users++ > 0) return;
  last_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &installed.before[i]);
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
