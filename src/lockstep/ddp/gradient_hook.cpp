#include "lockstep/ddp/gradient_hook.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

HookTask await_call(const std::function<Work(GradientBucket&)>& call, GradientBucket& bucket) {
  co_await call(bucket);
}

}  // namespace

HookTask GradientHook::operator()(GradientBucket& bucket) const {
  return is_simple() ? await_call(*call_, bucket) : (*task_)(bucket);
}

GradientHook GradientHook::fastest_of(std::vector<GradientHook> candidates) {
  if (candidates.empty()) {
    throw UsageError(
        "GradientHook::fastest_of() needs a candidate; the first one is used until "
        "they are measured: all_reduce_hook()");
  }
  std::string name = "fastest of";
  for (const auto& each : candidates) {
    if (!each.candidates().empty()) {
      throw UsageError(
          fmt::format("GradientHook::fastest_of() has {} as a candidate: list its "
                      "candidates instead",
                      each.name()));
    }
    name += fmt::format("{} {}", &each == &candidates.front() ? "" : ",", each.name());
  }
  GradientHook hook(
      [name](GradientBucket& /*bucket*/) -> Work {
        throw UsageError(fmt::format("{} was wrapped by another hook: wrap its candidates", name));
      },
      name);
  hook.candidates_ = std::move(candidates);
  return hook;
}

GradientHook all_reduce_hook() {
  return {[](GradientBucket& bucket) { return bucket.all_reduce(bucket.values()); }, "none"};
}

}  // namespace lockstep
