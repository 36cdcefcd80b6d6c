// The work of a gradient hook as a coroutine: it computes, awaits a call, computes, awaits the
// next call. The reducer resumes it when the awaited call is done: at a gradient that arrives
// during backward(), or at the end of backward(). All of it runs on the thread of backward().
//
//   ddp.set_hook([](GradientBucket& bucket) -> HookTask {
//     auto wire = bucket.values().to(at::kHalf);
//     co_await bucket.all_reduce(wire);  // backward() continues
//     bucket.values().copy_(wire);
//   });
//
// A coroutine may be destroyed while it awaits a call, when the group has failed. Its references
// and captures must stay valid until it has ended: a lambda lives in its GradientHook.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "lockstep/collectives/work.h"

namespace lockstep {

class [[nodiscard]] HookTask {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  HookTask() = default;
  HookTask(HookTask&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HookTask& operator=(HookTask&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  HookTask(const HookTask&) = delete;
  HookTask& operator=(const HookTask&) = delete;
  ~HookTask() {
    if (handle_) handle_.destroy();
  }

  /// Runs until the next call that is awaited, or to the end. The call awaited before must be done.
  /// Rethrows what the coroutine throws; it has ended then.
  void resume();
  /// Whether the coroutine has ended; true for an empty HookTask.
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// The call that is awaited. Valid after resume() unless done().
  [[nodiscard]] Work& awaited() const noexcept;

 private:
  explicit HookTask(Handle handle) noexcept : handle_(handle) {}

  Handle handle_ = nullptr;
};

// A task may await another task: the *outermost* promise knows which of them runs.
struct HookTask::promise_type {
  promise_type* outermost = this;
  Handle caller = nullptr;  // awaits this task
  std::exception_ptr error = nullptr;
  // In the outermost promise only:
  Handle running = Handle::from_promise(*this);
  Work awaited = {};

  HookTask get_return_object() { return HookTask(Handle::from_promise(*this)); }
  std::suspend_always initial_suspend() noexcept { return {}; }
  void return_void() noexcept {}
  void unhandled_exception() noexcept { error = std::current_exception(); }

  struct Return {
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle ended) const noexcept {
      const auto to = ended.promise().caller;
      if (!to) return std::noop_coroutine();
      ended.promise().outermost->running = to;
      return to;
    }
    void await_resume() const noexcept {}
  };
  Return final_suspend() noexcept { return {}; }

  struct AwaitWork {
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> /*self*/) const noexcept {}
    void await_resume() const noexcept {}
  };
  /// Suspends until the call is done: in bucket order, also if it is done already.
  AwaitWork await_transform(Work&& work) noexcept {
    outermost->awaited = std::move(work);
    return {};
  }
  AwaitWork await_transform(const Work& work) {
    outermost->awaited = work;
    return {};
  }

  struct AwaitTask {
    HookTask task;
    bool await_ready() const noexcept { return task.done(); }
    std::coroutine_handle<> await_suspend(Handle from) const noexcept {
      auto& promise = task.handle_.promise();
      promise.caller = from;
      promise.outermost = from.promise().outermost;
      promise.outermost->running = task.handle_;
      return task.handle_;
    }
    void await_resume() const {
      if (task.handle_ && task.handle_.promise().error) {
        std::rethrow_exception(task.handle_.promise().error);
      }
    }
  };
  /// Runs `task` to its end, as a part of this coroutine. Rethrows what it throws.
  AwaitTask await_transform(HookTask&& task) noexcept { return {std::move(task)}; }
};

inline void HookTask::resume() {
  handle_.promise().running.resume();
  if (handle_.done() && handle_.promise().error) std::rethrow_exception(handle_.promise().error);
}

inline Work& HookTask::awaited() const noexcept { return handle_.promise().awaited; }

}  // namespace lockstep
