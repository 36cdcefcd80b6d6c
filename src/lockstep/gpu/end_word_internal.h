// How the caller's stream awaits calls of ranks that share a GPU. The group's stream writes the
// number of each call to a word when the call has ended, and the caller's stream waits for the
// number instead of an event. Without MPS, processes on one GPU take turns: a stream that waits for
// an event keeps the turn of its process (2 ms on an H200) although the work before the event waits
// for another process; a stream that waits for a word gives it up at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/gpu/device_context_internal.h"

namespace lockstep {

class EndWord {
 public:
  /// Throws SystemError if the device refuses pinned memory.
  explicit EndWord(std::shared_ptr<DeviceContext> context);
  EndWord(const EndWord&) = delete;
  EndWord& operator=(const EndWord&) = delete;
  /// Does not wait: memory that a stream still waits for is not released.
  ~EndWord();

  /// Enqueues the end of a call on `stream`, always the same one, after all of the call's work.
  /// Returns its number.
  [[nodiscard]] std::uint32_t write(void* stream);
  /// Makes later work of `stream` wait for the end with this number.
  void make_wait(void* stream, std::uint32_t number);

 private:
  [[nodiscard]] bool is_awaited() const noexcept;

  const std::shared_ptr<DeviceContext> context_;
  std::byte* word_ = nullptr;  // pinned; the same address for host and device
  std::mutex mutex_;
  std::uint32_t written_ = 0;                         // mutex_
  std::map<void*, std::shared_ptr<void>> last_wait_;  // mutex_; by stream: passed when it resumed
};

}  // namespace lockstep
