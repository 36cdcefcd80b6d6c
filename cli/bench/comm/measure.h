// How a case is timed, for every backend: the loops, the rotation of buffers, and the in-place add
// that the figures are compared with. gloo.py does the same in Python.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cli/bench/comm/request.h"

namespace lockstep::cli {

/// The memory of one call on one rank.
struct CallMemory {
  std::span<std::byte> input = {};
  std::span<std::byte> output = {};
};

/// One rank of a backend, as the timing loops use it.
class TimedBackend {
 public:
  TimedBackend() = default;
  TimedBackend(const TimedBackend&) = delete;
  TimedBackend& operator=(const TimedBackend&) = delete;
  virtual ~TimedBackend() = default;

  [[nodiscard]] virtual int rank() const = 0;
  /// Whether the backend supports the case.
  [[nodiscard]] virtual bool can(const CommCase& timed) const = 0;
  /// Memory of arena_bytes of the request.
  [[nodiscard]] virtual std::span<std::byte> arena(MemoryKind memory) = 0;

  /// Issues the call of the case and waits for it. Collective.
  virtual void call(const CommCase& timed, const CallMemory& memory) = 0;
  virtual void barrier() = 0;
  /// Replaces each value by its maximum over all ranks. Collective.
  virtual void max_over_ranks(std::span<double> values) = 0;
};

/// The size of an arena of `timed` beyond which no byte is ever used: by the calls, each on a
/// buffer of its own, or by the in-place adds.
[[nodiscard]] std::size_t most_bytes_used(const CommRequest& request, const CommCase& timed);

/// Times all cases of the request. Collective. Returns the same answer on every rank.
[[nodiscard]] CommAnswer measure(TimedBackend& backend, const CommRequest& request,
                                 const std::string& about);

}  // namespace lockstep::cli
