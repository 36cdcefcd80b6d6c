// Trace events and the interface that receives them. An event is a span (a duration) or a counter
// (a growing total). All measurements are recorded through TraceSink, so a new output format is a
// new sink.
#pragma once

#include <chrono>
#include <string_view>

namespace lockstep {

using TraceClock = std::chrono::steady_clock;

struct TraceSpan {
  std::string_view name;  // valid during the call only
  TraceClock::time_point begin;
  TraceClock::time_point end;
};

struct TraceCounter {
  std::string_view name;  // valid during the call only
  TraceClock::time_point at;
  double value = 0;  // the total so far
};

/// Receives events from any thread. Never throws, and blocks only on its own lock: a measurement
/// must not make the measured code fail. A sink that loses events reports it through its own
/// interface.
class TraceSink {
 public:
  TraceSink() = default;
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;
  virtual ~TraceSink() = default;

  virtual void record(const TraceSpan& span) noexcept = 0;
  virtual void record(const TraceCounter& counter) noexcept = 0;
};

}  // namespace lockstep
