// An event as something that a recipe waits for.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lockstep/fabric/recipe.h"
#include "lockstep/gpu/device_context_internal.h"

namespace lockstep {

class EventCondition final : public LocalCondition {
 public:
  /// `rank` is this rank; its device is awaited.
  EventCondition(DeviceContext& context, std::shared_ptr<void> event, int rank)
      : context_(context), event_(std::move(event)), rank_(rank) {}

  /// A failed query ends the wait: call expect_passed() after it.
  [[nodiscard]] std::optional<int> lagging() const noexcept override {
    bool passed = true;
    status_ = context_.functions().query_event(event_.get(), passed);
    return status_.ok() && !passed ? std::optional(rank_) : std::nullopt;
  }
  /// Throws SystemError if the device has failed.
  void expect_passed() const { expect(status_, "the work before an event"); }

 private:
  mutable DeviceStatus status_;  // of the last query
  DeviceContext& context_;
  std::shared_ptr<void> event_;
  int rank_;
};

}  // namespace lockstep
