// What this process has used of its machine so far: memory, processor time, and the time in which
// it was ready and could not run. Read from the kernel; a figure that it does not give is 0.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct ProcessUsage {
  double rss_bytes = 0;
  double peak_rss_bytes = 0;
  double cpu_seconds = 0;  // of all threads
  // Of the calling thread:
  double run_queue_seconds = 0;  // ready, but no processor was free
  std::int64_t voluntary_switches = 0;
  std::int64_t involuntary_switches = 0;
  // Of the processors that the calling thread may use, summed:
  double steal_seconds = 0;      // withheld by the hypervisor
  double processor_seconds = 0;  // in total
  // Of the cgroup, or of the one above it that limits it:
  double throttled_seconds = 0;
};

/// Reads the figures now; about 50 us. Tests give the root of another file system.
[[nodiscard]] ProcessUsage read_process_usage(const std::string& root = "");

}  // namespace lockstep
