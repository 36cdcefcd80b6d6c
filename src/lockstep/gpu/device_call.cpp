#include "lockstep/gpu/device_call_internal.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

EventResult::EventResult(DevicePlane& plane, std::shared_ptr<DeviceContext> context, int rank,
                         std::function<int()> lagging)
    : plane_(plane), context_(std::move(context)), rank_(rank), lagging_(std::move(lagging)) {}

std::optional<int> EventResult::lagging() const noexcept {
  if (is_captured_ || has_passed_.load(std::memory_order_relaxed)) return std::nullopt;
  try {
    if (!context_->has_passed(event_.get())) return lagging_();
    has_passed_.store(true, std::memory_order_relaxed);
    return std::nullopt;
  } catch (const Error& error) {
    plane_.note_failure({rank_, error.what()});
    return std::nullopt;
  }
}

void EventResult::make_wait(void* stream) {
  if (has_passed_.load(std::memory_order_relaxed)) return;
  const auto selected = context_->scope();
  if (word_) return word_->make_wait(stream, number_);
  context_->make_wait(stream, event_.get());
}

}  // namespace lockstep
