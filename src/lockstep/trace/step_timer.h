// Divides the time of a training loop into the parts of its steps (step_split.h):
//
//   lockstep::StepTimer timer;
//   for (step = 1; step <= steps; ++step) {
//     timer.begin_step(step);
//     timer.enter(lockstep::StepPart::data_wait);
//     const auto batch = loader.next();
//     timer.enter(lockstep::StepPart::forward);
//     loss = loss_of(batch);
//     timer.enter(lockstep::StepPart::backward);
//     loss.backward();
//     timer.move(lockstep::StepPart::exposed, ddp.record().exposed);  // of the time since enter()
//     timer.enter(lockstep::StepPart::optimizer);
//     optimizer.step(1e-3);
//     print(timer.end_step().whole());
//   }
//
// Every moment belongs to one part, so the parts sum to the step. A change of part costs a few
// nanoseconds. On a GPU the times are those of the host: kernels run later.
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/trace/rank_page.h"
#include "lockstep/trace/step_split.h"
#include "lockstep/trace/trace.h"

namespace lockstep {

struct StepTimerOptions {
  Trace* trace = process_trace();  // receives the parts as spans; null: none
  RankPage* page = nullptr;        // is told of every change: world.page(); must outlive the timer
};

class StepTimer {
 public:
  explicit StepTimer(const StepTimerOptions& options = {}) noexcept : options_(options) {}

  /// Begins `step`, counted from 1, in StepPart::other. The time since the previous end_step()
  /// belongs to it too, so that a loop has no time without a step.
  void begin_step(std::int64_t step);
  /// The time from now on belongs to `part`.
  void enter(StepPart part) noexcept;
  /// `time` of the part that was entered last belongs to `part` instead: its end, in traces.
  void move(StepPart part, std::chrono::nanoseconds time) noexcept;
  /// Ends the step. Returns its parts.
  StepSplit end_step();

  [[nodiscard]] std::int64_t step() const noexcept { return step_; }

 private:
  void close_part(Ticks now) noexcept;

  StepTimerOptions options_;
  std::int64_t step_ = 0;
  StepPart part_ = StepPart::other;
  Ticks since_ = 0;
  StepSplit split_;  // in ticks until the step ends
  Ticks moved_ = 0;  // of the part that was entered last
  StepPart moved_to_ = StepPart::other;
  double nanoseconds_per_tick_ = TickAnchor::now().nanoseconds_per_tick();
};

}  // namespace lockstep
