// The processor time of one thread.
#pragma once

#include <pthread.h>
#include <time.h>

namespace lockstep {

/// The seconds that a thread which has not been joined has used so far; 0 if the kernel does not
/// tell.
[[nodiscard]] inline double processor_seconds_of(pthread_t thread) noexcept {
  clockid_t clock = 0;
  timespec time{};
  if (::pthread_getcpuclockid(thread, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace lockstep
