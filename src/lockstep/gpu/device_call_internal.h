// One rank's part of an operation on device memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/device_plane.h"
#include "lockstep/gpu/device_context_internal.h"
#include "lockstep/gpu/end_word_internal.h"

namespace lockstep {

/// The end of an operation's work, as an event of a stream.
class EventResult final : public DeviceResult {
 public:
  /// `lagging` names the rank that is awaited while the event has not passed.
  EventResult(DevicePlane& plane, std::shared_ptr<DeviceContext> context, int rank,
              std::function<int()> lagging);

  /// Instead of the event, the streams of make_wait() wait for this end. Before record().
  void await_word(std::shared_ptr<EndWord> word, std::uint32_t number) {
    word_ = std::move(word);
    number_ = number;
  }
  /// States that all work of the operation is enqueued on `stream`.
  void record(void* stream) {
    event_ = context_->record(stream);
    has_passed_.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] const std::shared_ptr<void>& event() const noexcept { return event_; }
  /// The work becomes part of a CUDA graph: its event cannot be asked.
  void set_captured() noexcept { is_captured_ = true; }
  [[nodiscard]] bool is_captured() const noexcept { return is_captured_; }

  /// If the query fails, the plane notes the failure, and the condition counts as fulfilled. Once
  /// the event has passed, the device is not asked again: Ddp asks at every gradient.
  [[nodiscard]] std::optional<int> lagging() const noexcept override;
  void make_wait(void* stream) override;

 private:
  DevicePlane& plane_;
  std::shared_ptr<DeviceContext> context_;
  int rank_;
  std::function<int()> lagging_;
  std::shared_ptr<void> event_;
  std::shared_ptr<EndWord> word_;  // null: streams wait for the event
  std::uint32_t number_ = 0;
  bool is_captured_ = false;
  mutable std::atomic<bool> has_passed_ = false;
};

class DeviceCall final : public CallOperation {
 public:
  explicit DeviceCall(std::unique_ptr<EventResult> own) : result(std::move(own)) {}
  [[nodiscard]] DeviceResult* device_result() noexcept override { return result.get(); }

  std::shared_ptr<void> ready = {};  // recorded on the caller's stream when the call was started
  std::unique_ptr<EventResult> result;
};

class DeviceMessage final : public MessageOperation {
 public:
  explicit DeviceMessage(std::unique_ptr<EventResult> own) : result(std::move(own)) {}
  [[nodiscard]] DeviceResult* device_result() noexcept override { return result.get(); }

  std::shared_ptr<void> ready = {};
  std::shared_ptr<MessageOperation> on_host = {};  // the same message through pinned memory
  std::shared_ptr<std::byte> pinned = {};
  std::unique_ptr<EventResult> result;
};

}  // namespace lockstep
