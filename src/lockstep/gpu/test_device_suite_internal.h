// For tests of groups on GPU memory: the device that the ranks of a suite use, a double or a real
// one, and how a suite starts, awaits and checks operations on it. With no device set, the same
// functions use CPU memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/fabric/group.h"
#include "lockstep/gpu/connect.h"
#include "lockstep/gpu/test_device_double_internal.h"
#include "lockstep/gpu/test_nccl_double_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {

/// The device of the suite that runs. Ranks that are threads share one table of functions.
class SuiteDevice {
 public:
  struct Setting {
    BackendKind backend = BackendKind::ipc;
    DoubleOptions device = {};
    std::size_t stage_bytes = 4096;  // small, so that small spans need several windows
    std::shared_ptr<DeviceFunctions> (*functions)() = nullptr;  // null: a double
    std::shared_ptr<Watcher> (*watcher)() = nullptr;            // null: none
    std::shared_ptr<NcclFunctions> (*nccl)() = nullptr;         // null: a double
  };

  /// nullopt: CPU memory.
  static void set(std::optional<Setting> setting) {
    const std::lock_guard lock(state().mutex);
    state().setting = setting;
    state().made = nullptr;
    state().nccl = nullptr;
    state().streams.clear();
  }
  [[nodiscard]] static bool is_set() { return state().setting.has_value(); }

  [[nodiscard]] static std::shared_ptr<DeviceFunctions> get() {
    const std::lock_guard lock(state().mutex);
    auto& made = state().made;
    const auto& setting = *state().setting;
    if (!made && setting.functions != nullptr) made = setting.functions();
    if (!made) made = std::make_shared<DeviceDouble>(setting.device);
    return made;
  }
  [[nodiscard]] static DeviceDouble& get_double() { return dynamic_cast<DeviceDouble&>(*get()); }
  [[nodiscard]] static std::shared_ptr<NcclDouble> nccl() {
    auto device = std::dynamic_pointer_cast<DeviceDouble>(get());
    const std::lock_guard lock(state().mutex);
    if (!state().nccl) {
      state().nccl = std::make_shared<NcclDouble>(
          std::move(device), NcclDoubleOptions{.seed = state().setting->device.seed,
                                               .between_processes = testing::is_rank_process()});
    }
    return state().nccl;
  }
  [[nodiscard]] static Device device_of(const Group& group) {
    if (!is_set()) return {};
    const auto devices = state().setting->device.num_devices;
    return {DeviceKind::cuda, group.global_rank(group.rank()) % devices};
  }
  /// The stream of a rank's caller.
  [[nodiscard]] static void* stream_of(const Group& group) {
    const auto functions = get();
    const std::lock_guard lock(state().mutex);
    auto& stream = state().streams[group.global_rank(group.rank())];
    if (stream == nullptr) {
      // Where a test scripts a failure, the default stream remains.
      (void)functions->set_device(device_of(group).index).ok();
      (void)functions->make_stream(stream).ok();
    }
    return stream;
  }
  /// Adds the suite's device to the groups of `host`.
  [[nodiscard]] static Connect connect(Connect host) {
    return connect_with_devices(std::move(host), options());
  }
  [[nodiscard]] static DeviceOptions options() {
    DeviceOptions options;
    options.backend.backend = state().setting->backend;
    options.functions = [] { return get(); };
    if (state().setting->backend == BackendKind::nccl) options.nccl = [] { return nccl(); };
    if (state().setting->nccl != nullptr) options.nccl = state().setting->nccl;
    options.stage_bytes = state().setting->stage_bytes;
    if (state().setting->watcher != nullptr) options.watcher = state().setting->watcher;
    return options;
  }

 private:
  struct State {
    std::mutex mutex;
    std::optional<Setting> setting;
    std::shared_ptr<DeviceFunctions> made;  // mutex
    std::shared_ptr<NcclDouble> nccl;       // mutex
    std::map<int, void*> streams;           // mutex; by global rank
  };
  static State& state() {
    static State state;
    return state;
  }
};

/// The call, the message and the memory on the device of the suite.
inline Call on_device(const Group& group, Call call) {
  if (!SuiteDevice::is_set() || call.kind == Collective::barrier) return call;
  call.device = SuiteDevice::device_of(group);
  call.stream = SuiteDevice::stream_of(group);
  return call;
}
inline Message on_device(const Group& group, Message message) {
  if (!SuiteDevice::is_set()) return message;
  message.device = SuiteDevice::device_of(group);
  message.stream = SuiteDevice::stream_of(group);
  return message;
}
inline std::shared_ptr<RegisteredMemory> allocate_on_device(Group& group, std::size_t bytes) {
  return group.allocate(bytes, SuiteDevice::device_of(group));
}

/// Memory of the suite's device.
class SuiteMemory {
 public:
  explicit SuiteMemory(std::size_t bytes) : functions_(SuiteDevice::get()), bytes_(bytes) {
    EXPECT_TRUE(functions_->allocate(std::max<std::size_t>(bytes, 1), start_).ok());
  }
  SuiteMemory(const SuiteMemory&) = delete;
  SuiteMemory& operator=(const SuiteMemory&) = delete;
  ~SuiteMemory() { EXPECT_TRUE(functions_->release(start_).ok()); }
  [[nodiscard]] std::span<std::byte> bytes() const { return {start_, bytes_}; }

 private:
  std::shared_ptr<DeviceFunctions> functions_;
  std::byte* start_ = nullptr;
  std::size_t bytes_;
};

/// Returns when the host can read the result.
inline void finish(Group& group, Operation& operation, std::optional<Deadline> deadline = {}) {
  group.synchronize(operation, deadline);
}

}  // namespace lockstep
