#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/fabric/peers_internal.h"

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

Peers::Peers(std::span<const pid_t> processes) : processes_(processes.begin(), processes.end()) {
  for (const auto process : processes_) {
    FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!descriptor && errno != ESRCH) {
      throw SystemError(fmt::format("cannot watch process {} (pidfd_open)", process), errno);
    }
    descriptors_.push_back(std::move(descriptor));
  }
}

bool Peers::dead(int rank) const {
  const auto& descriptor = descriptors_[static_cast<std::size_t>(rank)];
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
