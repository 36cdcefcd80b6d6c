#include "lockstep/ddp/device_timeline.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace lockstep {

DeviceTimeline::DeviceTimeline(at::Device device, std::size_t num_buckets)
    : device_(device),
      side_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      begin_(std::chrono::steady_clock::now()),
      first_(make_event()),
      backward_(make_event()) {
  for (std::size_t i = 0; i < num_buckets; ++i) {
    ready_.push_back(make_event());
    launched_.push_back(make_event());
    done_.push_back(make_event());
  }
  record(first_);
}

c10::Event DeviceTimeline::make_event() const {
  return {device_.type(), c10::EventFlag::BACKEND_DEFAULT};  // with times
}

void DeviceTimeline::record(c10::Event& event) const {
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void DeviceTimeline::mark_ready(std::size_t bucket) { record(ready_[bucket]); }
void DeviceTimeline::mark_launched(std::size_t bucket) { record(launched_[bucket]); }
void DeviceTimeline::mark_end_of_backward() { record(backward_); }

void DeviceTimeline::mark_done(std::size_t bucket, const std::function<void()>& wait) {
  const c10::StreamGuard guard(side_);
  wait();
  record(done_[bucket]);
}

DeviceTimes::Milliseconds DeviceTimeline::since_first(const c10::Event& event) const {
  if (!event.was_marked_for_recording()) return {};
  event.synchronize();
  return DeviceTimes::Milliseconds(first_.elapsedTime(event));
}

// A group of one rank has no stream of its own: its work ends when the launching stream has done
// it.
DeviceTimes DeviceTimeline::read() const {
  DeviceTimes times{.backward = since_first(backward_)};
  DeviceTimes::Milliseconds before{0};
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const auto ready = since_first(ready_[i]);
    const auto done = std::max(since_first(done_[i]), since_first(launched_[i]));
    times.buckets.push_back({.ready = ready, .begun = std::max(ready, before), .done = done});
    before = done;
  }
  return times;
}

void trace(const DeviceTimeline& timeline, Trace& trace) {
  const auto times = timeline.read();
  const auto anchor = TickAnchor::now();
  const auto now = ticks();
  const auto since_begin =
      std::chrono::duration<double, std::nano>(anchor.steady(now) - timeline.begin());
  const auto at = [&](DeviceTimes::Milliseconds time) {
    const double before = std::max(0.0, since_begin.count() - 1e6 * time.count());
    return now - static_cast<Ticks>(before / anchor.nanoseconds_per_tick());
  };
  for (std::size_t i = 0; i < times.buckets.size(); ++i) {
    trace.record({.begin = at(times.buckets[i].begun),
                  .end = at(times.buckets[i].done),
                  .name = "reduced on the device",
                  .index = static_cast<std::int32_t>(i),
                  .kind = EventKind::span,
                  .lane = Lane::bucket});
  }
  trace.record({.begin = at({}),
                .end = at(times.backward),
                .name = "backward on the device",
                .kind = EventKind::span,
                .lane = Lane::compute});
}

}  // namespace lockstep
