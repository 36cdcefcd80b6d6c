// What happened when. Spans (something lasted) and counters (something grew) are events; a sink
// takes them. Everything that measures writes to this one interface, so a new way to look at a run
// is a new sink.
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

/// Takes events from any thread. Never throws and never blocks on anything but its own lock:
/// measuring must not change what is measured into a failure. A sink that loses events says so by
/// its own means.
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
