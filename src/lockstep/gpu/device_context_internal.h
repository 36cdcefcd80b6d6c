// A device of this process as one group uses it: its function table, the stream on which the
// group's transfers run, and reusable events and pinned buffers. The functions throw SystemError,
// in the words of the driver.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "lockstep/gpu/device_functions.h"

namespace lockstep {

/// Throws SystemError if `status` is a failure; `what`: "copy of a shard".
void expect(const DeviceStatus& status, std::string_view what);

/// Selects a device for the calling thread while it exists.
class DeviceScope {
 public:
  DeviceScope(DeviceFunctions& functions, int device);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope();

 private:
  DeviceFunctions& functions_;
  int device_;
  int before_ = 0;
};

class DeviceContext : public std::enable_shared_from_this<DeviceContext> {
 public:
  DeviceContext(std::shared_ptr<DeviceFunctions> functions, int device);
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  ~DeviceContext();

  [[nodiscard]] DeviceFunctions& functions() const noexcept { return *functions_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Its work runs beside that of the caller's streams.
  [[nodiscard]] void* stream() const noexcept { return stream_; }
  /// Messages have a stream of their own: a call that waits for a rank must not delay the message
  /// that this rank waits for. Made at first use: a device has few queues, and streams that share
  /// one wait for each other.
  [[nodiscard]] void* message_stream() { return make_once(message_stream_); }
  /// A second stream of calls, for copies in the other direction. Made at first use.
  [[nodiscard]] void* copy_stream() { return make_once(copy_stream_); }
  [[nodiscard]] bool is_idle();
  [[nodiscard]] DeviceScope scope() const { return {*functions_, device_}; }

  /// An event recorded on `stream`; it can be reused once all owners have dropped it.
  [[nodiscard]] std::shared_ptr<void> record(void* stream);
  void make_wait(void* stream, void* event);
  [[nodiscard]] bool has_passed(void* event);
  /// Pinned memory of at least `bytes`; it can be reused once all owners have dropped it.
  [[nodiscard]] std::shared_ptr<std::byte> pinned(std::size_t bytes);

 private:
  void* make_once(void*& stream);

  std::shared_ptr<DeviceFunctions> functions_;
  int device_;
  void* stream_ = nullptr;
  std::mutex mutex_;
  void* message_stream_ = nullptr;                      // mutex_
  void* copy_stream_ = nullptr;                         // mutex_
  std::vector<void*> free_events_;                      // mutex_
  std::multimap<std::size_t, std::byte*> free_pinned_;  // mutex_; by size
};

}  // namespace lockstep
