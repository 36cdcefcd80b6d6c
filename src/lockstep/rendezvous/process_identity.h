// The identity of a process of this host: its pid and its start time, since pids are reused.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep {

struct ProcessIdentity {
  pid_t process = 0;
  std::int64_t started = 0;  // in clock ticks since boot; 0 when /proc is not available

  /// The identity of the process that has the pid `process` now.
  [[nodiscard]] static ProcessIdentity of(pid_t process);

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// The fields of /proc/<pid>/stat after the program's name, the state first; empty when the process
/// has ended.
[[nodiscard]] std::string stat_after_name(pid_t process);

}  // namespace lockstep
