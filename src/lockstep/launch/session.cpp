// signal_session of supervisor_process_internal.h: finds the members of a session in /proc without
// heap memory. A process group would be simpler, but `timeout` and shells with job control start
// their own groups.
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/launch/supervisor_process_internal.h"

namespace lockstep {
namespace {

// Parses the number at the start of `text` and advances `text` behind it; -1 without a digit.
pid_t parse_number(const char*& text) noexcept {
  if (*text < '0' || *text > '9') return -1;
  pid_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return number;
}

bool proc_is_ours() noexcept {
  std::array<char, 32> text{};
  if (::readlink("/proc/self", text.data(), text.size() - 1) <= 0) return false;
  const char* at = text.data();
  return parse_number(at) == ::getpid();
}

// "4711 (any name) S 1 4700 4690 …": state, parent, group, session.
bool is_member(int proc, const char* name, pid_t session) noexcept {
  std::array<char, 32> path{};
  const std::size_t length = ::strnlen(name, 16);
  std::memcpy(path.data(), name, length);
  std::memcpy(path.data() + length, "/stat", 6);
  const int file = ::openat(proc, path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 512> text{};
  const ssize_t count = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  const char* at = count > 0 ? ::strrchr(text.data(), ')') : nullptr;
  if (at == nullptr || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X' || at[3] != ' ') return false;
  at += 4;
  for (int field = 0; field < 2; ++field) {
    (void)parse_number(at);
    if (*at++ != ' ') return false;
  }
  return parse_number(at) == session;
}

}  // namespace

int signal_session(pid_t session, int signal) noexcept {
  if (!proc_is_ours()) return -1;
  const int proc = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) return -1;
  int members = 0;
  alignas(dirent64) std::array<char, 8192> entries;  // NOLINT: filled by the kernel
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, proc, entries.data(), entries.size());
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      at += entry->d_reclen;
      const char* digits = entry->d_name;
      const pid_t pid = parse_number(digits);
      if (pid <= 0 || pid == session || *digits != '\0') continue;
      // Checked after the pidfd is open: before that, the number could be reused.
      const auto process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
      if (is_member(proc, entry->d_name, session)) {
        ++members;
        if (signal != 0 && process >= 0) {
          ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0);
        } else if (signal != 0) {
          ::kill(pid, signal);  // descriptors have run out
        }
      }
      if (process >= 0) ::close(process);
    }
  }
  ::close(proc);
  return members;
}

}  // namespace lockstep
