// Records events (event.h): any thread writes into a ring of its own, without locks and without
// allocation, and one reader drains all rings. A part of the library that records takes a Trace*;
// null disables it, which costs one test.
//
//   lockstep::Trace trace;
//   {
//     const lockstep::Span span(&trace, "augment");  // until the end of the scope
//     train(input, target);
//   }
//   for (const auto& event : trace.drain()) print(event.name, event.end - event.begin);
//
// A trace records the steps of a window only: before and after it, record() returns at once. Steps
// are set by StepTimer (step_timer.h) or, in programs without one, counted by Ddp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/trace/event.h"

namespace lockstep {

/// Steps, both included. Steps are counted from 1.
struct StepWindow {
  std::int64_t first = 0;
  std::int64_t last = INT64_MAX;

  [[nodiscard]] bool contains(std::int64_t step) const noexcept {
    return first <= step && step <= last;
  }
};

struct TraceOptions {
  StepWindow window = {};
  std::size_t events_per_thread = std::size_t{1} << 15;  // rounded up to a power of two
  bool operators = false;                                // Ddp records LibTorch's operators too
  // Called by the training thread when a step of the window has ended; `last`: no other follows.
  std::function<void(bool last)> on_step = {};
};

class Trace {
 public:
  explicit Trace(TraceOptions options = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  /// Whether the current step is in the window.
  [[nodiscard]] bool is_active() const noexcept { return active_.load(std::memory_order_relaxed); }
  /// Adds `event` to the ring of this thread; counts it as lost if the ring is full. The first
  /// event of a thread allocates its ring.
  void record(const TraceEvent& event) noexcept;

  /// The step that events belong to. Steps increase.
  [[nodiscard]] std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  /// Begins `step` at `now`, on the training thread. From now on count_step() has no effect.
  void begin_step(std::int64_t step, Ticks now = ticks());
  /// Ends the last step.
  void end_steps();
  /// A reduction of gradients has ended: the next step begins, unless begin_step() is used.
  void count_step();

  /// A copy of `text` that lives as long as the trace. Takes a lock: for rare events.
  [[nodiscard]] const char* intern(std::string_view text);

  /// Removes the recorded events and returns them, those of one thread in their order. One thread
  /// at a time.
  [[nodiscard]] std::vector<TraceEvent> drain();
  /// Events lost because a ring was full.
  [[nodiscard]] std::int64_t num_lost() const;

  [[nodiscard]] const TraceOptions& options() const noexcept { return options_; }
  /// True once: for the caller that will record operators.
  [[nodiscard]] bool claim_operators() noexcept { return !has_operators_.exchange(true); }

 private:
  struct Ring;

  [[nodiscard]] Ring* ring_of_this_thread() noexcept;
  [[nodiscard]] Ring* add_ring() noexcept;
  void change_step(std::int64_t step, Ticks now);

  const TraceOptions options_;
  const std::uint64_t id_;  // of this trace, for the rings that threads remember
  std::atomic<bool> active_;
  std::atomic<std::int64_t> step_{0};
  std::atomic<bool> has_operators_{false};
  bool steps_are_set_ = false;  // training thread
  Ticks step_begin_ = 0;        // training thread
  mutable std::mutex mutex_;    // guards all that follows
  std::vector<std::unique_ptr<Ring>> rings_;
  std::set<std::string, std::less<>> names_;
};

/// The trace of this process: that of LOCKSTEP_PROFILE. Null if there is none. A profile is of a
/// whole process, so parts of the library use it where a program gives them no Trace.
[[nodiscard]] Trace* process_trace() noexcept;
/// Called by init(). `trace` must outlive the objects that use it.
void set_process_trace(Trace* trace) noexcept;

}  // namespace lockstep
