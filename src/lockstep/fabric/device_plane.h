// The device plane of a group moves the data of calls on GPU memory. group.h uses it beside the
// data plane, which has the calls on CPU memory; both have the same control plane, so that
// entering, comparing and failing are written once.
//
// A call on a device is enqueued, not executed, by the host: start() records an event on the
// caller's stream; once all ranks have entered, begin() enqueues the work on a stream of the plane,
// behind that event. The operation is then done for the host, and its DeviceResult states the end
// of the work. A transport that needs the host for every piece returns a recipe from begin().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "lockstep/fabric/call.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"

namespace lockstep {

class DevicePlane {
 public:
  DevicePlane() = default;
  DevicePlane(const DevicePlane&) = delete;
  DevicePlane& operator=(const DevicePlane&) = delete;
  virtual ~DevicePlane() = default;

  /// "ipc", and why; both are empty before the first call on a device.
  [[nodiscard]] virtual std::string kind() const = 0;
  [[nodiscard]] virtual std::string reason() const = 0;
  /// Why memory on `device` is unsupported, and what to do; nullopt if it is supported.
  [[nodiscard]] virtual std::optional<std::string> refusal_of(const Device& device) const = 0;

  /// Called before every collective call on `device`, without the group's lock. The first time it
  /// chooses the transport and connects the ranks, with calls of `group`: collective. Throws
  /// UsageError for a second device of this rank or if no transport supports the devices,
  /// SystemError, PeerError.
  virtual void connect(Group& group, const Device& device) = 0;

  /// As the functions of DataPlane. Throw SystemError if the device refuses; the group then fails
  /// and names this rank. Messages do not need connect(), which is collective.
  [[nodiscard]] virtual std::shared_ptr<CallOperation> prepare(const Call& call,
                                                               std::uint64_t number) = 0;
  [[nodiscard]] virtual Recipe begin(CallOperation& operation) = 0;
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> send(
      const Message& message, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> receive(const Message& message,
                                                                  std::span<std::byte> bytes) = 0;
  /// Called when an operation is done for the host. Keeps `operation.keep` until its work has
  /// ended.
  virtual void retire(Operation& operation) noexcept = 0;

  /// Whether calls may become part of a CUDA graph that is being captured on the caller's stream.
  /// Otherwise prepare() throws UsageError for them. A captured call is done once it is enqueued:
  /// no result exists before a replay.
  virtual void allow_capture(bool allowed) noexcept = 0;
  /// Called before a replay of captured calls is enqueued on `stream`, when all earlier calls are
  /// done for the host: the replay follows their work, because it uses the same memory of the
  /// transport. Throws SystemError.
  virtual void begin_replay(void* stream) = 0;
  /// Called when the replay has been enqueued: its end has the group's timeout, until then the
  /// other ranks are watched, and the work of later calls follows it. Throws SystemError.
  virtual void note_replay(void* stream) = 0;

  /// Allocates zeroed memory of `bytes` on the device of every rank, with calls of `group`.
  /// Collective; called without the group's lock. Throws SystemError on every rank if a rank has
  /// too little memory, PeerError.
  [[nodiscard]] virtual std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                                   std::size_t bytes) = 0;

  /// Called when the group has failed. Lets all enqueued work end, without its result, and returns
  /// when no other rank can write to this rank's memory, or logs that it cannot know.
  virtual void cut_off() noexcept = 0;
  /// Called when this rank leaves the group: returns when the enqueued work has ended. `watch`
  /// throws if a rank has failed; then the work ends without its result.
  virtual void leave(const Watch& watch) noexcept = 0;

  /// Whether a failure was noted by another thread than the one that uses the group: by the
  /// watcher, or by a query of the device. The group then fails with that cause.
  [[nodiscard]] bool has_failed() const noexcept {
    return has_failed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::optional<Cause> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  /// Notes the first failure. Thread-safe.
  void note_failure(const Cause& cause) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = cause;
    has_failed_.store(true, std::memory_order_release);
  }
  /// True for the first caller, which publishes the failure on the control plane: other ranks may
  /// read its cause from then on, so that it must not change. Thread-safe.
  [[nodiscard]] bool claim_publication() noexcept { return !is_published_.exchange(true); }

 private:
  std::atomic<bool> has_failed_ = false;
  std::atomic<bool> is_published_ = false;
  mutable std::mutex mutex_;
  std::optional<Cause> failure_;  // mutex_
};

}  // namespace lockstep
