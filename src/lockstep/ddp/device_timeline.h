// When the device of a GPU worked on the buckets of one reduction. The times are those of events on
// its streams: recording them costs a microsecond each and waits for nothing; read() waits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/trace/trace.h"

namespace lockstep {

/// Times after the first gradient of the backward.
struct DeviceTimes {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  struct Bucket {
    Milliseconds ready{0};  // its gradients were in its memory
    Milliseconds begun{0};  // its reduction could begin: it was ready, and the one before was done
    Milliseconds done{0};   // it held the average
  };
  std::vector<Bucket> buckets = {};
  Milliseconds backward{0};  // the end of the backward's own work
};

class DeviceTimeline {
 public:
  /// Called when the first gradient has arrived.
  DeviceTimeline(at::Device device, std::size_t num_buckets);

  // Each marks the end of the work that is on the current stream now.
  void mark_ready(std::size_t bucket);
  void mark_launched(std::size_t bucket);
  void mark_end_of_backward();
  /// Marks the end of the work for which `wait` makes the current stream wait. The caller's stream
  /// does not wait.
  void mark_done(std::size_t bucket, const std::function<void()>& wait);

  /// Waits for the device.
  [[nodiscard]] DeviceTimes read() const;
  /// On the host.
  [[nodiscard]] std::chrono::steady_clock::time_point begin() const noexcept { return begin_; }

 private:
  [[nodiscard]] c10::Event make_event() const;
  void record(c10::Event& event) const;
  [[nodiscard]] DeviceTimes::Milliseconds since_first(const c10::Event& event) const;

  at::Device device_;
  c10::Stream side_;  // waits for the reductions and has no work of its own
  std::chrono::steady_clock::time_point begin_;
  c10::Event first_, backward_;
  std::vector<c10::Event> ready_, launched_, done_;  // by bucket
};

/// Records the spans of the buckets and of the backward, as trace() of a StepRecord does with the
/// host's times: after the moment at which the first gradient arrived on the host. Waits for the
/// device.
void trace(const DeviceTimeline& timeline, Trace& trace);

}  // namespace lockstep
