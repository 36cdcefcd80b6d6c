#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {

std::shared_ptr<const FileDescriptor> ProcessWatches::watch(const ProcessIdentity& process) {
  const std::lock_guard lock(mutex_);
  auto& [started, known] = watched_[process.process];
  if (auto descriptor = known.lock(); descriptor && started == process.started) return descriptor;
  FileDescriptor opened(static_cast<int>(::syscall(SYS_pidfd_open, process.process, 0)));
  if (!opened && errno != ESRCH) {
    throw SystemError(fmt::format("cannot watch process {} (pidfd_open)", process.process), errno);
  }
  // Compared after the pidfd is open: the number may have been reused for another process before.
  if (opened && process.started != 0 && ProcessIdentity::of(process.process) != process) {
    opened.reset();
  }
  auto descriptor = std::make_shared<const FileDescriptor>(std::move(opened));
  started = process.started;
  known = descriptor;
  return descriptor;
}

Peers::Peers(std::span<const ProcessIdentity> processes, ProcessWatches& watches)
    : processes_(processes.begin(), processes.end()) {
  for (const auto& process : processes_) descriptors_.push_back(watches.watch(process));
}

bool Peers::dead(int rank) const {
  const auto& descriptor = *descriptors_[static_cast<std::size_t>(rank)];
  if (!descriptor) return true;
  pollfd watched{descriptor.number(), POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0 && watched.revents != 0;
}

std::string Peers::describe(int rank) const {
  const auto process = this->process(rank);
  const auto stat = stat_after_name(process);
  const char state = stat.empty() ? '?' : stat.front();
  const auto* words = state == 'T'   ? ", stopped by a signal"
                      : state == 't' ? ", stopped by a debugger"
                      : state == 'D' ? ", in uninterruptible sleep (disk or driver)"
                                     : "";
  return fmt::format("pid {}{}", process, words);
}

}  // namespace lockstep
