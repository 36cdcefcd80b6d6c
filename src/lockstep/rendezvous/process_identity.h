// A process of this host: its number, and when it started, since numbers are given again.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace lockstep {

struct ProcessIdentity {
  pid_t process = 0;
  std::int64_t started = 0;  // in clock ticks since the host's start; 0: /proc does not tell

  /// Of the process that has the number `process` now.
  [[nodiscard]] static ProcessIdentity of(pid_t process);

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

}  // namespace lockstep
