// The functions of a GPU's driver and runtime that the transports of this room call, as a table.
// Two implementations: CUDA (cuda_functions.cpp), and the double of the tests, whose device memory
// is host memory (test_device_double_internal.h). No file above this table includes a CUDA header.
//
// A stream and an event are the driver's handles, opaque here; the null stream is the default one.
// All functions refer to the device that set_device() has selected for the calling thread, unless
// they take a handle. No function throws, and none waits for the device except release(),
// close_memory(), unregister_host() and synchronize().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lockstep/fabric/backend_choice.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

/// The result of a function of a table: success, or what failed in the words of the driver.
class [[nodiscard]] DeviceStatus {
 public:
  DeviceStatus() = default;
  [[nodiscard]] static DeviceStatus failed(std::string text) {
    DeviceStatus status;
    status.text_ = text.empty() ? "unknown error" : std::move(text);
    return status;
  }

  [[nodiscard]] bool ok() const noexcept { return text_.empty(); }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// What another process of the host needs to map device memory.
using MemoryHandle = std::array<std::byte, 64>;

/// What a stream does with a word of registered or pinned host memory. `word` is the address for
/// the device.
struct WordAction {
  enum class Kind : std::uint8_t {
    write,  // after all earlier work of the stream, whose writes are visible before it
    wait,   // until the word, counted modulo 2^32, has reached the value
  };
  Kind kind = Kind::write;
  std::byte* word = nullptr;
  std::uint32_t value = 0;
};

class DeviceFunctions {
 public:
  DeviceFunctions() = default;
  DeviceFunctions(const DeviceFunctions&) = delete;
  DeviceFunctions& operator=(const DeviceFunctions&) = delete;
  virtual ~DeviceFunctions() = default;

  virtual DeviceStatus count_devices(int& count) = 0;
  virtual DeviceStatus current_device(int& device) = 0;
  virtual DeviceStatus set_device(int device) = 0;
  /// Fills all but has_nccl.
  virtual DeviceStatus describe(int device, DeviceFacts& facts) = 0;

  /// `directly`: device `from` reads the memory of device `to` without the host.
  virtual DeviceStatus reaches(int from, int to, bool& directly) = 0;

  virtual DeviceStatus make_stream(void*& stream) = 0;
  virtual DeviceStatus destroy_stream(void* stream) = 0;
  /// `empty`: all work of the stream has ended. A failure of that work is reported here.
  virtual DeviceStatus query_stream(void* stream, bool& empty) = 0;
  virtual DeviceStatus synchronize(void* stream) = 0;
  /// Whether work for the stream goes into a CUDA graph instead of the device.
  [[nodiscard]] virtual bool is_capturing(void* stream) = 0;

  virtual DeviceStatus make_event(void*& event) = 0;
  virtual DeviceStatus destroy_event(void* event) = 0;
  virtual DeviceStatus record(void* event, void* stream) = 0;
  /// Makes later work of `stream` wait for the last record() of `event`.
  virtual DeviceStatus make_wait(void* stream, void* event) = 0;
  /// `passed`: the work before the last record() has ended.
  virtual DeviceStatus query_event(void* event, bool& passed) = 0;

  virtual DeviceStatus allocate(std::size_t bytes, std::byte*& memory) = 0;
  virtual DeviceStatus release(std::byte* memory) = 0;
  /// Pinned memory of the host.
  virtual DeviceStatus allocate_host(std::size_t bytes, std::byte*& memory) = 0;
  virtual DeviceStatus release_host(std::byte* memory) = 0;
  /// Pins memory of the host. `on_device` is its address for kernels and word actions.
  virtual DeviceStatus register_host(std::span<std::byte> memory, std::byte*& on_device) = 0;
  virtual DeviceStatus unregister_host(std::byte* memory) = 0;
  /// `memory` is what allocate() has returned.
  virtual DeviceStatus export_memory(std::byte* memory, MemoryHandle& handle) = 0;
  virtual DeviceStatus open_memory(const MemoryHandle& handle, std::byte*& memory) = 0;
  virtual DeviceStatus close_memory(std::byte* memory) = 0;

  // Work on a stream.

  /// Between any two of device memory, pinned memory and registered memory.
  virtual DeviceStatus copy(std::byte* to, const std::byte* from, std::size_t bytes,
                            void* stream) = 0;
  virtual DeviceStatus set_zero(std::byte* memory, std::size_t bytes, void* stream) = 0;
  virtual DeviceStatus word_actions(std::span<const WordAction> actions, void* stream) = 0;
  /// As reduce() of kernels/reduce.h, with its bits, on device memory.
  virtual DeviceStatus reduce(const Reduction& reduction, const TreePlan& plan,
                              std::span<const std::byte* const> sources,
                              std::span<std::byte* const> destinations, std::size_t count,
                              void* stream) = 0;
};

/// The functions of CUDA. Throws UsageError, with instructions, where lockstep was built without
/// it.
[[nodiscard]] std::shared_ptr<DeviceFunctions> cuda_functions();

}  // namespace lockstep
