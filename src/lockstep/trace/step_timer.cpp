#include "lockstep/trace/step_timer.h"

#include <algorithm>

namespace lockstep {

void StepTimer::begin_step(std::int64_t step) {
  const auto now = ticks();
  part_ = StepPart::other;
  if (since_ != 0) close_part(now);  // since the end of the previous step
  since_ = now;
  step_ = step;
  if (options_.trace != nullptr) options_.trace->begin_step(step, now);
  if (options_.page != nullptr) options_.page->step(step_);
}

void StepTimer::enter(StepPart part) noexcept {
  close_part(ticks());
  part_ = part;
  if (options_.page != nullptr) options_.page->enter(part_);
}

void StepTimer::move(StepPart part, std::chrono::nanoseconds time) noexcept {
  moved_ = static_cast<Ticks>(static_cast<double>(std::max<std::int64_t>(time.count(), 0)) /
                              nanoseconds_per_tick_);
  moved_to_ = part;
}

StepSplit StepTimer::end_step() {
  close_part(ticks());
  StepSplit result;
  for (std::size_t i = 0; i < kNumStepParts; ++i) {
    result.parts[i] = std::chrono::nanoseconds(static_cast<std::int64_t>(
        static_cast<double>(split_.parts[i].count()) * nanoseconds_per_tick_));
  }
  split_ = {};
  return result;
}

void StepTimer::close_part(Ticks now) noexcept {
  const auto add = [&](StepPart part, Ticks begin, Ticks end) {
    if (begin == end) return;
    split_[part] += std::chrono::nanoseconds(static_cast<std::int64_t>(end - begin));
    if (options_.trace == nullptr) return;
    options_.trace->record({.begin = begin,
                            .end = end,
                            .index = static_cast<std::int32_t>(part),
                            .kind = EventKind::part,
                            .lane = Lane::compute});
  };
  const auto divide = now - std::min(moved_, now - since_);
  add(part_, since_, divide);
  add(moved_to_, divide, now);
  moved_ = 0;
  since_ = now;
}

}  // namespace lockstep
