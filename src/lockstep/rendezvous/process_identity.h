// A process of this host: its number, and when it started, since numbers are given again.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep {

struct ProcessIdentity {
  pid_t process = 0;
  std::int64_t started = 0;  // in clock ticks since the host's start; 0: /proc does not tell

  /// Of the process that has the number `process` now.
  [[nodiscard]] static ProcessIdentity of(pid_t process);

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// What /proc/<pid>/stat says after the program's name, the state first; empty when the process has
/// ended.
[[nodiscard]] std::string stat_after_name(pid_t process);

}  // namespace lockstep
