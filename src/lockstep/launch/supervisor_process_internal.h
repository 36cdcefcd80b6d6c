// What runs in the supervisor and, until it executes its program, in the worker. Both are forked
// from a process that may have any number of threads (LibTorch's), so from the fork on only what
// signal-safety(7) allows is called: system calls on memory that was prepared before.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <span>

namespace lockstep {

/// One message of a supervisor on the line.
struct SupervisorMessage {
  enum class Kind : std::uint32_t { started, start_failed, ended };
  Kind kind = Kind::started;
  std::int32_t value = 0;  // pid; errno; status as waitpid stores it
  std::uint32_t step = 0;  // StartFailure::Step
  std::uint32_t reserved = 0;
  std::int64_t steady_ns = 0;  // CLOCK_MONOTONIC
};

/// A message of the launcher is one byte: the number of a signal for the worker, or this one.
constexpr std::uint8_t kKillAll = 0xff;

/// Everything the supervisor needs, laid out before the fork.
struct SupervisorPlan {
  int line = -1;                          // the supervisor's end
  int launcher = -1;                      // a pidfd, or -1 where there are none
  std::span<const int> standard = {};     // what become 0, 1, 2
  std::span<const int> descriptors = {};  // what become 3, 4, …
  std::span<const char* const> paths = {};
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const cpu_set_t* processors = nullptr;  // may be null
  std::size_t processors_bytes = 0;
  std::int64_t linger_ns = 0;
  std::uint64_t descriptor_limit = 0;  // the worker's soft limit; 0: the launcher's
};

/// Call it in a forked child with all signals blocked.
[[noreturn]] void run_supervisor(const SupervisorPlan& plan) noexcept;

/// Sends `signal` (0: none) to every process of `session` but its leader, zombies left out, and
/// returns how many there were. Safe after fork. Returns -1 if /proc is not there, or not that of
/// this process's pid namespace.
int signal_session(pid_t session, int signal) noexcept;

}  // namespace lockstep
