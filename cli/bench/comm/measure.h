// How a case is timed, whatever the backend: the loops, the rotation of buffers, the in-place add
// that the figures are held against. gloo.py does the same in Python.
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

/// An backend as the loops see it: one rank of it.
class TimedBackend {
 public:
  TimedBackend() = default;
  TimedBackend(const TimedBackend&) = delete;
  TimedBackend& operator=(const TimedBackend&) = delete;
  virtual ~TimedBackend() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual bool can(const CommCase& timed) const = 0;
  /// arena_bytes of the request, touched.
  [[nodiscard]] virtual std::span<std::byte> arena(MemoryKind memory) = 0;

  /// Collective: one call, from start to end.
  virtual void call(const CommCase& timed, const CallMemory& memory) = 0;
  virtual void barrier() = 0;
  /// Replaces each value by the largest of all ranks. Collective.
  virtual void max_over_ranks(std::span<double> values) = 0;
};

/// Times all cases of the request. Collective; the answer is the same on every rank.
[[nodiscard]] CommAnswer measure(TimedBackend& backend, const CommRequest& request,
                                 const std::string& about);

}  // namespace lockstep::cli
