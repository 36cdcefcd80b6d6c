#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {
namespace {

// The letter after the program's name in /proc/<pid>/stat; a name may hold spaces and brackets.
char state_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto end = text.rfind(") ");
  return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

}  // namespace

std::shared_ptr<const FileDescriptor> ProcessWatches::watch(const ProcessIdentity& process) {
  const std::lock_guard lock(mutex_);
  auto& [started, known] = watched_[process.process];
  if (auto descriptor = known.lock(); descriptor && started == process.started) return descriptor;
  FileDescriptor opened(static_cast<int>(::syscall(SYS_pidfd_open, process.process, 0)));
  if (!opened && errno != ESRCH) {
    throw SystemError(fmt::format("cannot watch process {} (pidfd_open)", process.process), errno);
  }
  // Looked at when the descriptor holds the number: another process may have been given it before.
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
  const auto state = state_of(process);
  const auto* words = state == 'T'   ? ", stopped by a signal"
                      : state == 't' ? ", held by a debugger"
                      : state == 'D' ? ", waiting for the kernel (disk or driver)"
                                     : "";
  return fmt::format("pid {}{}", process, words);
}

}  // namespace lockstep
