// The code of the supervisor process, and of the worker until it executes its program. Both are
// forked from a process that may have threads (those of LibTorch), so after the fork they call only
// what signal-safety(7) allows: system calls on memory that was prepared before.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <span>

namespace lockstep {

/// One message of a supervisor to the launcher.
struct SupervisorMessage {
  enum class Kind : std::uint32_t { started, start_failed, ended };
  Kind kind = Kind::started;
  std::int32_t value = 0;    // the pid, errno, or the status of waitpid(2)
  std::uint32_t action = 0;  // StartFailure::Action
  std::uint32_t reserved = 0;
  std::int64_t steady_ns = 0;  // CLOCK_MONOTONIC
};

/// A message of the launcher is one byte: the number of a signal for the worker, or this value.
constexpr std::uint8_t kKillAll = 0xff;

/// All data of the supervisor, prepared before the fork.
struct SupervisorPlan {
  int socket = -1;                        // the supervisor's end
  int launcher = -1;                      // a pidfd, or -1 where pidfds are not available
  std::span<const int> standard = {};     // these become 0, 1, 2
  std::span<const int> descriptors = {};  // these become 3, 4, …
  std::span<const char* const> paths = {};
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const cpu_set_t* processors = nullptr;  // may be null
  std::size_t processors_bytes = 0;
  std::int64_t linger_ns = 0;
  std::uint64_t descriptor_limit = 0;  // the worker's soft limit; 0: that of the launcher
};

/// Runs the supervisor. Call it in a forked child with all signals blocked.
[[noreturn]] void run_supervisor(const SupervisorPlan& plan) noexcept;

/// Sends `signal` (0: none) to every process of `session` except its leader and zombies. Returns
/// the number of these processes; -1 if /proc is not available or belongs to another pid namespace.
/// Safe after fork.
int signal_session(pid_t session, int signal) noexcept;

}  // namespace lockstep
