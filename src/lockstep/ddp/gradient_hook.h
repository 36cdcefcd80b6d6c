// How the gradients of a bucket are averaged, as the user's own function. Without a hook a Ddp
// makes one all-reduce per bucket. There are two forms:
//
//   // simple: one call, which reduces the bucket in place
//   ddp.set_hook([](GradientBucket& bucket) { return bucket.all_reduce(bucket.values()); });
//
//   // a coroutine: computes before, between and after calls
//   ddp.set_hook([](GradientBucket& bucket) -> HookTask {
//     auto half = bucket.values().to(at::kBFloat16);
//     co_await bucket.all_reduce(half);
//     bucket.values().copy_(half);
//   });
//
// gradient_bucket.h states what a hook may do. If a hook throws, the step fails: backward() throws
// the hook's exception on that rank and PeerError on the others, the gradients of the step are
// discarded on all ranks, and the next step may run. backward() continues to its end before that.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/ddp/gradient_bucket.h"
#include "lockstep/ddp/hook_task.h"

namespace lockstep {

/// A function of a bucket that returns Work or HookTask.
template <typename Function>
concept BucketFunction = std::is_same_v<std::invoke_result_t<Function&, GradientBucket&>, Work> ||
    std::is_same_v<std::invoke_result_t<Function&, GradientBucket&>, HookTask>;

/// A value that is cheap to copy; copies share the function and its state.
class GradientHook {
 public:
  /// `name` is for messages; Ddp::set_hook() compares it on all ranks. `function` lives as long as
  /// a copy of the hook.
  template <BucketFunction Function>
  GradientHook(Function function, std::string name = "own hook")  // NOLINT: converts
      : name_(std::move(name)) {
    if constexpr (std::is_same_v<std::invoke_result_t<Function&, GradientBucket&>, Work>) {
      call_ = std::make_shared<std::function<Work(GradientBucket&)>>(std::move(function));
    } else {
      task_ = std::make_shared<std::function<HookTask(GradientBucket&)>>(std::move(function));
    }
  }

  /// A hook that uses the fastest of `candidates`, per size of bucket. After the second step each
  /// candidate reduces a copy of a bucket of each size, and the times of the slowest rank decide,
  /// so that all ranks choose the same; rank 0 logs the choice with its figures. Until then, and
  /// where all ranks are on one host, the first candidate is used: the one without compression. It
  /// is measured again after rebind() and adopt(). It cannot be wrapped: wrap its candidates.
  [[nodiscard]] static GradientHook fastest_of(std::vector<GradientHook> candidates);
  /// The candidates of fastest_of(); empty for other hooks.
  [[nodiscard]] std::span<const GradientHook> candidates() const noexcept { return candidates_; }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether the function returns Work.
  [[nodiscard]] bool is_simple() const noexcept { return call_ != nullptr; }

  /// For a hook that wraps this one: `co_await inner(bucket);`. `bucket` must live until the steps
  /// have ended, as a variable of the awaiting coroutine does.
  [[nodiscard]] HookTask operator()(GradientBucket& bucket) const;
  /// Makes the call. Requires is_simple().
  [[nodiscard]] Work call(GradientBucket& bucket) const { return (*call_)(bucket); }

 private:
  std::string name_;
  std::vector<GradientHook> candidates_;
  // One of the two is set.
  std::shared_ptr<std::function<Work(GradientBucket&)>> call_;
  std::shared_ptr<std::function<HookTask(GradientBucket&)>> task_;
};

/// One all-reduce per bucket, without compression, as without a hook. Its name is "none".
[[nodiscard]] GradientHook all_reduce_hook();

}  // namespace lockstep
