#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/flat/device_gather_internal.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/with_elements_internal.h"
#include "lockstep/kernels/device_passes.h"

namespace lockstep {
namespace {

// Waiting gradients occupy memory that autograd would reuse; a launch of this size takes far longer
// than its start.
constexpr std::size_t kMostBytes = 32U << 20;

c10::Stream stream_of(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

void DeviceGather::add(int parameter, const at::Tensor& slot, const at::Tensor& gradient,
                       bool adds) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(parameter);
  const auto stream = stream_of(slot.device());
  if (waits_[index] || (stream_ && *stream_ != stream)) flush_locked();
  stream_ = stream;
  waits_[index] = true;
  arrived_.push_back({parameter, slot, gradient, adds});
  bytes_ += slot.nbytes();
  if (bytes_ >= kMostBytes || arrived_.size() == kMostGathered) flush_locked();
}

void DeviceGather::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void DeviceGather::flush_locked() {
  if (arrived_.empty()) return;
  const auto stream = *stream_;
  const auto current = stream_of(stream.device());
  {
    const c10::StreamGuard guard(stream);
    std::vector<at::ScalarType> dtypes;
    for (const auto& each : arrived_) {
      const auto dtype = each.slot.scalar_type();
      if (std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end()) continue;
      dtypes.push_back(dtype);
      launch(dtype);
    }
  }
  if (current != stream) {
    c10::Event written(stream.device_type());
    written.record(stream);
    written.block(current);
  }
  for (const auto& each : arrived_) waits_[static_cast<std::size_t>(each.parameter)] = false;
  arrived_.clear();
  bytes_ = 0;
  stream_.reset();
}

void DeviceGather::launch(at::ScalarType dtype) {
  std::vector<GatheredGradient> table;
  at::Tensor any;
  for (const auto& each : arrived_) {
    if (each.slot.scalar_type() != dtype) continue;
    any = each.slot;
    with_elements(each.slot, [&]<typename T>(std::span<T> to) {
      const auto* const from = static_cast<const T*>(each.gradient.const_data_ptr());
      constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max() / 64 * 64;
      for (std::size_t begin = 0; begin < to.size(); begin += kMost) {
        table.push_back({from + begin, to.data() + begin,
                         static_cast<std::uint32_t>(std::min(kMost, to.size() - begin)),
                         static_cast<std::uint32_t>(each.parameter), each.adds});
      }
    });
  }
  auto& notes = notes_on(any.device());
  with_elements(any, [&]<typename T>(std::span<T>) {
    launch_gather<T>(table, static_cast<std::uint32_t*>(notes.mutable_data_ptr()),
                     current_stream(any.device()));
  });
}

at::Tensor& DeviceGather::notes_on(at::Device device) {
  const at::NoGradGuard off;
  const auto index = static_cast<std::size_t>(device.index());
  if (notes_.size() <= index) notes_.resize(index + 1);
  if (std::exchange(notes_are_old_, false)) {
    for (auto& notes : notes_) {
      if (notes.defined()) notes.zero_();
    }
  }
  if (!notes_[index].defined()) {
    notes_[index] =
        at::zeros({static_cast<std::int64_t>(waits_.size())}, at::dtype(at::kInt).device(device));
  }
  return notes_[index];
}

void DeviceGather::begin_notes() {
  const std::lock_guard lock(mutex_);
  notes_are_old_ = true;
}

std::vector<bool> DeviceGather::read_notes() {
  const std::lock_guard lock(mutex_);
  flush_locked();
  std::vector<bool> all(waits_.size(), false);
  for (const auto& notes : notes_) {
    if (!notes.defined()) continue;
    const auto on_host = notes.cpu();
    const auto* const flags = on_host.const_data_ptr<int>();
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = all[i] || flags[i] != 0;
  }
  return all;
}

}  // namespace lockstep
