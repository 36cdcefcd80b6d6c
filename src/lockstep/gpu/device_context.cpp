#include "lockstep/gpu/device_context_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

void expect(const DeviceStatus& status, std::string_view what) {
  if (!status.ok()) throw SystemError(fmt::format("the GPU refused {}: {}", what, status.text()));
}

DeviceScope::DeviceScope(DeviceFunctions& functions, int device)
    : functions_(functions), device_(device) {
  expect(functions.current_device(before_), "the number of the current device");
  if (before_ != device) expect(functions.set_device(device), fmt::format("cuda:{}", device));
}

DeviceScope::~DeviceScope() {
  if (before_ != device_) (void)functions_.set_device(before_);
}

DeviceContext::DeviceContext(std::shared_ptr<DeviceFunctions> functions, int device)
    : functions_(std::move(functions)), device_(device) {
  const auto selected = scope();
  expect(functions_->make_stream(stream_), "a stream");
}

// What the device refuses here cannot be helped any more.
DeviceContext::~DeviceContext() {
  for (auto* event : free_events_) (void)functions_->destroy_event(event);
  for (const auto& [bytes, memory] : free_pinned_) (void)functions_->release_host(memory);
  for (auto* stream : {stream_, message_stream_, copy_stream_}) {
    if (stream != nullptr) (void)functions_->destroy_stream(stream);
  }
}

void* DeviceContext::make_once(void*& stream) {
  const std::lock_guard lock(mutex_);
  if (stream == nullptr) {
    const auto selected = scope();
    expect(functions_->make_stream(stream), "a stream");
  }
  return stream;
}

bool DeviceContext::is_idle() {
  const std::lock_guard lock(mutex_);
  for (auto* stream : {stream_, message_stream_, copy_stream_}) {
    if (stream == nullptr) continue;
    bool empty = false;
    expect(functions_->query_stream(stream, empty), "the work of a stream");
    if (!empty) return false;
  }
  return true;
}

std::shared_ptr<void> DeviceContext::record(void* stream) {
  void* event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_events_.empty()) {
      event = free_events_.back();
      free_events_.pop_back();
    }
  }
  if (event == nullptr) expect(functions_->make_event(event), "an event");
  std::shared_ptr<void> owned(event, [self = shared_from_this()](void* used) {
    const std::lock_guard lock(self->mutex_);
    self->free_events_.push_back(used);
  });
  expect(functions_->record(event, stream), "the record of an event");
  return owned;
}

void DeviceContext::make_wait(void* stream, void* event) {
  expect(functions_->make_wait(stream, event), "a wait for an event");
}

bool DeviceContext::has_passed(void* event) {
  bool passed = false;
  expect(functions_->query_event(event, passed), "the work before an event");
  return passed;
}

std::shared_ptr<std::byte> DeviceContext::pinned(std::size_t bytes) {
  const auto size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_pinned_.find(size); found != free_pinned_.end()) {
      memory = found->second;
      free_pinned_.erase(found);
    }
  }
  if (memory == nullptr) expect(functions_->allocate_host(size, memory), "pinned memory");
  return {memory, [self = shared_from_this(), size](std::byte* used) {
            const std::lock_guard lock(self->mutex_);
            self->free_pinned_.emplace(size, used);
          }};
}

}  // namespace lockstep
