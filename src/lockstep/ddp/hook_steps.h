// The steps of a gradient hook as a coroutine: it computes, awaits a call, computes, awaits the
// next call. The reducer resumes it when the awaited call is done: at a gradient that arrives
// during backward(), or at the end of backward(). All of it runs on the thread of backward().
//
//   ddp.set_hook([](GradientBucket& bucket) -> HookSteps {
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

class [[nodiscard]] HookSteps {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  HookSteps() = default;
  HookSteps(HookSteps&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HookSteps& operator=(HookSteps&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  HookSteps(const HookSteps&) = delete;
  HookSteps& operator=(const HookSteps&) = delete;
  ~HookSteps() {
    if (handle_) handle_.destroy();
  }

  /// Runs until the next call that is awaited, or to the end. The call awaited before must be done.
  /// Rethrows what the coroutine throws; it has ended then.
  void resume();
  /// Whether the coroutine has ended; true for an empty HookSteps.
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// The call that is awaited. Valid after resume() unless done().
  [[nodiscard]] Work& awaited() const noexcept;

 private:
  explicit HookSteps(Handle handle) noexcept : handle_(handle) {}

  Handle handle_ = nullptr;
};

// Steps may await other steps: the *outermost* promise knows which of them runs.
struct HookSteps::promise_type {
  promise_type* outermost = this;
  Handle caller = nullptr;  // awaits these steps
  std::exception_ptr error = nullptr;
  // In the outermost promise only:
  Handle running = Handle::from_promise(*this);
  Work awaited = {};

  HookSteps get_return_object() { return HookSteps(Handle::from_promise(*this)); }
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

  struct AwaitSteps {
    HookSteps steps;
    bool await_ready() const noexcept { return steps.done(); }
    std::coroutine_handle<> await_suspend(Handle from) const noexcept {
      auto& promise = steps.handle_.promise();
      promise.caller = from;
      promise.outermost = from.promise().outermost;
      promise.outermost->running = steps.handle_;
      return steps.handle_;
    }
    void await_resume() const {
      if (steps.handle_ && steps.handle_.promise().error) {
        std::rethrow_exception(steps.handle_.promise().error);
      }
    }
  };
  /// Runs `steps` to their end, as a part of this coroutine. Rethrows what they throw.
  AwaitSteps await_transform(HookSteps&& steps) noexcept { return {std::move(steps)}; }
};

inline void HookSteps::resume() {
  handle_.promise().running.resume();
  if (handle_.done() && handle_.promise().error) std::rethrow_exception(handle_.promise().error);
}

inline Work& HookSteps::awaited() const noexcept { return handle_.promise().awaited; }

}  // namespace lockstep
