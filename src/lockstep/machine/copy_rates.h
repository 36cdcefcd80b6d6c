// How fast bytes are copied between the host and the GPUs, and between GPUs. Measured on request
// only: a probe takes a part of a second per GPU and uses its memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// From one memory to another; nullopt is pinned memory of the host, a number is a GPU.
struct CopyPath {
  std::optional<int> from = {};
  std::optional<int> to = {};
  bool both_ways = false;  // a second copy runs in the other direction at the same time

  friend bool operator==(const CopyPath&, const CopyPath&) = default;
};

/// Copies and takes the time; implemented by the room that has the device.
class CopyTimer {
 public:
  CopyTimer() = default;
  CopyTimer(const CopyTimer&) = delete;
  CopyTimer& operator=(const CopyTimer&) = delete;
  virtual ~CopyTimer() = default;

  [[nodiscard]] virtual int num_devices() const = 0;
  /// Whether GPU `from` reaches the memory of GPU `to` without the host.
  [[nodiscard]] virtual bool has_peer_access(int from, int to) const = 0;
  /// Seconds that `repetitions` copies of `bytes` take, back to back. Throws SystemError.
  [[nodiscard]] virtual double seconds(const CopyPath& path, std::size_t bytes,
                                       int repetitions) = 0;
};

struct CopyRateOptions {
  std::size_t bytes = std::size_t{64} << 20U;  // per copy
  int repetitions = 10;
};

struct CopyRate {
  CopyPath path = {};
  double bytes_per_second = 0;    // of both copies together if they run both ways
  bool through_the_host = false;  // between GPUs without peer access

  friend bool operator==(const CopyRate&, const CopyRate&) = default;
};

/// Measures every GPU against the host (each way, then both), within itself, and against every
/// other GPU. Throws any exception of `timer`.
[[nodiscard]] std::vector<CopyRate> measure_copy_rates(CopyTimer& timer,
                                                       const CopyRateOptions& options = {});

/// "host -> cuda:0  54.2 GB/s", one line per rate. 1 GB is 10^9 bytes.
[[nodiscard]] std::vector<std::string> copy_rate_lines(const std::vector<CopyRate>& rates);

}  // namespace lockstep
