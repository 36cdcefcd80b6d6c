// For tests. A double of DeviceFunctions: device memory is memory of the host, a stream is a queue
// of tasks, and one thread executes the first task of a stream that it draws at random, so that
// every seed gives another order. With a lag, streams are held back too: work that should wait for
// another stream and does not is then executed before it, even if it was enqueued long after it.
// Ranks may be threads, which share one double, or processes, which have one each and map each
// other's memory. Errors are scripted.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/random.h"
#include "lockstep/gpu/device_functions.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {

struct DoubleOptions {
  std::uint64_t seed = 1;
  int num_devices = 1;
  bool maps_memory = true;
  std::size_t lag = 0;  // the most draws for which a stream is held back
};

class DeviceDouble final : public DeviceFunctions {
 public:
  /// Called with the name of every function before it does anything; a failure is returned.
  using Fault = std::function<DeviceStatus(std::string_view function)>;
  /// Whether a task can be executed. Called with the double's lock.
  using IsRunnable = std::function<bool()>;
  using Action = std::function<void()>;
  /// Called before every task, without the double's lock.
  using BeforeTask = std::function<void()>;

  explicit DeviceDouble(DoubleOptions options)
      : options_(options),
        random_({options.seed, random_purpose("device double")}, 0, 0),
        scheduler_([this](const std::stop_token& stop) { schedule(stop); }) {}

  ~DeviceDouble() override {
    scheduler_.request_stop();
    changed_.notify_all();
  }

  void set_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  void set_before_task(BeforeTask before_task) {
    const std::lock_guard lock(mutex_);
    before_task_ = std::move(before_task);
  }

  /// Appends a task to a stream; `runnable` null: it waits for nothing else. `polls`: nothing wakes
  /// the double when the task becomes runnable.
  void enqueue(void* stream, IsRunnable runnable, Action action, bool polls = false) {
    const std::lock_guard lock(mutex_);
    auto& queue = streams_[stream];
    if (queue.tasks.empty()) hold_back(queue);
    queue.tasks.push_back({std::move(runnable), std::move(action), polls});
    changed_.notify_all();
  }
  /// Work for the stream counts as part of a graph, and that of streams that wait for it. It is
  /// executed nevertheless.
  void capture(void* stream, bool captured) {
    const std::lock_guard lock(mutex_);
    std::erase_if(captured_, [&](const auto& each) { return each.second == stream; });
    if (captured) captured_[stream] = stream;
  }
  /// While frozen, no task is executed: a device that hangs.
  void freeze(bool frozen) {
    const std::lock_guard lock(mutex_);
    frozen_ = frozen;
    changed_.notify_all();
  }
  /// Wakes the scheduler after something that a task waits for has changed.
  void poke() { changed_.notify_all(); }

  DeviceStatus count_devices(int& count) override {
    count = options_.num_devices;
    return fault_in("count_devices");
  }
  DeviceStatus current_device(int& device) override {
    device = selected();
    return fault_in("current_device");
  }
  DeviceStatus set_device(int device) override {
    selected() = device;
    return fault_in("set_device");
  }
  DeviceStatus describe(int device, DeviceFacts& facts) override {
    facts.uuid[0] = static_cast<std::uint8_t>(device + 1);
    facts.maps_memory = options_.maps_memory;
    return fault_in("describe");
  }

  DeviceStatus reaches(int /*from*/, int /*to*/, bool& directly) override {
    directly = true;
    return fault_in("reaches");
  }

  DeviceStatus make_stream(void*& stream) override {
    const std::lock_guard lock(mutex_);
    stream = reinterpret_cast<void*>(++handles_);
    return fault_of("make_stream");
  }
  DeviceStatus destroy_stream(void* /*stream*/) override { return fault_in("destroy_stream"); }
  DeviceStatus query_stream(void* stream, bool& empty) override {
    const std::lock_guard lock(mutex_);
    empty = streams_[stream].tasks.empty();
    return fault_of("query_stream");
  }
  DeviceStatus synchronize(void* stream) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return streams_[stream].tasks.empty(); });
    return fault_of("synchronize");
  }

  bool is_capturing(void* stream) override {
    const std::lock_guard lock(mutex_);
    return captured_.contains(stream);
  }

  DeviceStatus make_event(void*& event) override {
    const std::lock_guard lock(mutex_);
    event = reinterpret_cast<void*>(++handles_);
    return fault_of("make_event");
  }
  DeviceStatus destroy_event(void* event) override {
    const std::lock_guard lock(mutex_);
    events_.erase(event);
    return fault_of("destroy_event");
  }
  DeviceStatus record(void* event, void* stream) override {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (auto status = fault_of("record"); !status.ok()) return status;
      number = ++events_[event].recorded;
      const auto found = captured_.find(stream);
      events_[event].captured_by = found == captured_.end() ? nullptr : found->second;
    }
    enqueue(stream, nullptr, [this, event, number] {
      const std::lock_guard lock(mutex_);
      events_[event].passed = number;
    });
    return {};
  }
  DeviceStatus make_wait(void* stream, void* event) override {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (auto status = fault_of("make_wait"); !status.ok()) return status;
      number = events_[event].recorded;
      auto* const captured_by = events_[event].captured_by;
      if (captured_.contains(captured_by)) captured_[stream] = captured_by;
    }
    enqueue(
        stream, [this, event, number] { return events_[event].passed >= number; }, [] {});
    return {};
  }
  DeviceStatus query_event(void* event, bool& passed) override {
    const std::lock_guard lock(mutex_);
    passed = events_[event].passed >= events_[event].recorded;
    return fault_of("query_event");
  }

  DeviceStatus allocate(std::size_t bytes, std::byte*& memory) override {
    return make_memory("allocate", bytes, memory);
  }
  DeviceStatus release(std::byte* memory) override { return drop_memory("release", memory); }
  DeviceStatus allocate_host(std::size_t bytes, std::byte*& memory) override {
    return make_memory("allocate_host", bytes, memory);
  }
  DeviceStatus release_host(std::byte* memory) override {
    return drop_memory("release_host", memory);
  }
  DeviceStatus register_host(std::span<std::byte> memory, std::byte*& on_device) override {
    on_device = memory.data();
    return fault_in("register_host");
  }
  DeviceStatus unregister_host(std::byte* /*memory*/) override {
    return fault_in("unregister_host");
  }

  DeviceStatus export_memory(std::byte* memory, MemoryHandle& handle) override {
    const std::lock_guard lock(mutex_);
    if (auto status = fault_of("export_memory"); !status.ok()) return status;
    const auto& found = memory_.at(memory);
    const Exported exported{::getpid(), found->descriptor(), found->bytes().size()};
    std::memcpy(handle.data(), &exported, sizeof(exported));
    return {};
  }
  DeviceStatus open_memory(const MemoryHandle& handle, std::byte*& memory) override {
    const std::lock_guard lock(mutex_);
    if (auto status = fault_of("open_memory"); !status.ok()) return status;
    Exported exported{};
    std::memcpy(&exported, handle.data(), sizeof(exported));
    const auto path =
        "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.descriptor);
    try {
      auto opened =
          std::make_unique<SharedMemory>(FileDescriptor::open(path, O_RDWR), exported.bytes);
      memory = opened->bytes().data();
      memory_[memory] = std::move(opened);
    } catch (const std::exception& error) {
      return DeviceStatus::failed(error.what());
    }
    return {};
  }
  DeviceStatus close_memory(std::byte* memory) override {
    return drop_memory("close_memory", memory);
  }

  DeviceStatus copy(std::byte* to, const std::byte* from, std::size_t bytes,
                    void* stream) override {
    if (auto status = fault_in("copy"); !status.ok()) return status;
    enqueue(stream, nullptr, [=] {
      if (bytes > 0) std::memmove(to, from, bytes);
    });
    return {};
  }
  DeviceStatus set_zero(std::byte* memory, std::size_t bytes, void* stream) override {
    if (auto status = fault_in("set_zero"); !status.ok()) return status;
    enqueue(stream, nullptr, [=] {
      if (bytes > 0) std::memset(memory, 0, bytes);
    });
    return {};
  }
  DeviceStatus word_actions(std::span<const WordAction> actions, void* stream) override {
    if (auto status = fault_in("word_actions"); !status.ok()) return status;
    for (const auto& action : actions) {
      auto* const word = reinterpret_cast<std::uint32_t*>(action.word);
      const auto value = action.value;
      if (action.kind == WordAction::Kind::write) {
        enqueue(stream, nullptr, [=] { std::atomic_ref(*word).store(value); });
      } else {
        enqueue(
            stream,
            [=] { return static_cast<std::int32_t>(std::atomic_ref(*word).load() - value) >= 0; },
            [] {}, /*polls=*/true);
      }
    }
    return {};
  }
  DeviceStatus reduce(const Reduction& reduction, const TreePlan& plan,
                      std::span<const std::byte* const> sources,
                      std::span<std::byte* const> destinations, std::size_t count,
                      void* stream) override {
    if (auto status = fault_in("reduce"); !status.ok()) return status;
    enqueue(stream, nullptr,
            [reduction, plan, from = std::vector(sources.begin(), sources.end()),
             to = std::vector(destinations.begin(), destinations.end()),
             count] { lockstep::reduce(reduction, plan, from, to, count); });
    return {};
  }

 private:
  struct Task {
    IsRunnable runnable;
    Action action;
    bool polls = false;
  };
  struct Stream {
    std::deque<Task> tasks;  // the first one may be running
    std::size_t held = 0;    // the number of draws for which it is held back
  };
  struct Event {
    std::uint64_t recorded = 0;
    std::uint64_t passed = 0;
    void* captured_by = nullptr;
  };
  struct Exported {
    pid_t process = 0;
    int descriptor = 0;
    std::size_t bytes = 0;
  };

  DeviceStatus make_memory(std::string_view function, std::size_t bytes, std::byte*& memory) {
    const std::lock_guard lock(mutex_);
    if (auto status = fault_of(function); !status.ok()) return status;
    auto made = std::make_unique<SharedMemory>(bytes);
    memory = made->bytes().data();
    // Other than zeros, as memory of a device is.
    std::memset(memory, 0xA5, bytes);
    memory_[memory] = std::move(made);
    return {};
  }
  DeviceStatus drop_memory(std::string_view function, std::byte* memory) {
    const std::lock_guard lock(mutex_);
    memory_.erase(memory);
    return fault_of(function);
  }

  static int& selected() {
    thread_local int device = 0;
    return device;
  }
  DeviceStatus fault_of(std::string_view function) {
    return fault_ ? fault_(function) : DeviceStatus();
  }
  DeviceStatus fault_in(std::string_view function) {
    const std::lock_guard lock(mutex_);
    return fault_of(function);
  }

  // Every second time.
  void hold_back(Stream& stream) {
    if (options_.lag > 0 && random_.below(2) == 0) stream.held = random_.below(options_.lag) + 1;
  }

  void schedule(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      bool polls = false;
      std::vector<Stream*> runnable;
      for (auto& [handle, stream] : streams_) {
        if (frozen_ || stream.tasks.empty()) continue;
        if (stream.held > 0) {
          --stream.held;
          polls = true;
          continue;
        }
        const auto& first = stream.tasks.front();
        if (!first.runnable || first.runnable()) runnable.push_back(&stream);
        polls = polls || first.polls;
      }
      if (runnable.empty()) {
        // The timeout also covers a notification between the test of `stop` and the wait.
        changed_.wait_for(lock, std::chrono::microseconds(polls ? 50 : 5000));
        continue;
      }
      auto& stream = *runnable[random_.below(runnable.size())];
      const auto action = stream.tasks.front().action;
      const auto before_task = before_task_;
      lock.unlock();
      if (before_task) before_task();
      action();
      lock.lock();
      stream.tasks.pop_front();
      changed_.notify_all();
    }
  }

  const DoubleOptions options_;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  RandomStream random_;
  Fault fault_;
  BeforeTask before_task_;
  bool frozen_ = false;
  std::uintptr_t handles_ = 0;
  std::map<void*, Stream> streams_;
  std::map<void*, void*> captured_;  // the stream whose capture began it
  std::map<void*, Event> events_;
  std::map<std::byte*, std::unique_ptr<SharedMemory>> memory_;
  std::jthread scheduler_;  // the last member
};

}  // namespace lockstep
