// The duration of a scope, recorded when the scope ends:
//   const lockstep::Span span(&trace, "augment");
// Without a trace, or outside of its window, it costs one test.
#pragma once

#include "lockstep/trace/trace.h"

namespace lockstep {

class Span {
 public:
  /// Starts now. `trace` may be null. `name` is a literal, or of Trace::intern().
  Span(Trace* trace, const char* name) noexcept
      : Span(trace, TraceEvent{.name = name, .kind = EventKind::span, .lane = Lane::compute}) {}
  /// `event` without its times.
  Span(Trace* trace, const TraceEvent& event) noexcept
      : trace_(trace != nullptr && trace->is_active() ? trace : nullptr) {
    if (trace_ == nullptr) return;
    event_ = event;
    event_.begin = ticks();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    if (trace_ == nullptr) return;
    event_.end = ticks();
    trace_->record(event_);
  }

 private:
  Trace* trace_;
  TraceEvent event_;
};

}  // namespace lockstep
