// The duration of a scope, recorded when the scope ends:
//   Span span(sink, "backward");
#pragma once

#include <string>
#include <utility>

#include "lockstep/trace/sink.h"

namespace lockstep {

class Span {
 public:
  /// Starts now. `sink` must outlive the span.
  Span(TraceSink& sink, std::string name)
      : sink_(sink), name_(std::move(name)), begin_(TraceClock::now()) {}
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() { sink_.record(TraceSpan{name_, begin_, TraceClock::now()}); }

 private:
  TraceSink& sink_;
  std::string name_;
  TraceClock::time_point begin_;
};

}  // namespace lockstep
