#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {
namespace {

HookSteps await_call(const std::function<Work(GradientBucket&)>& call, GradientBucket& bucket) {
  co_await call(bucket);
}

}  // namespace

HookSteps GradientHook::operator()(GradientBucket& bucket) const {
  return is_simple() ? await_call(*call_, bucket) : (*steps_)(bucket);
}

}  // namespace lockstep
