#include <algorithm>
#include <utility>

#include "lockstep/ddp/hook_run_internal.h"

namespace lockstep {

HookRun::HookRun(GradientBucket::State::Facts facts, const GradientBucket::State::Groups& groups,
                 HookScratch& scratch)
    : state_(std::move(facts), groups, scratch), bucket_(state_) {}

void HookRun::begin(const GradientHook& hook) {
  if (hook.is_simple()) {
    (void)hook.call(bucket_);
  } else {
    task_ = hook(bucket_);
    task_.resume();
  }
  if (!state_.works.empty()) return;
  (void)state_.make_call(
      ReduceOp::sum, 0,
      [](const ProcessGroup& group, const CallOptions& options) { return group.barrier(options); });
}

bool HookRun::advance(bool waits) {
  const auto is_done = [waits](Work& work) {
    if (waits) work.wait();
    return waits || work.done();
  };
  if (task_.done()) {
    ended_ = std::all_of(state_.works.begin(), state_.works.end(), is_done);
    return ended_;
  }
  // On a GPU the rest of the steps is enqueued on one stream, that of the end of backward().
  if (!waits && bucket_.values().is_cuda()) return false;
  if (!is_done(task_.awaited())) return false;
  state_.is_suspended = true;
  task_.resume();
  return true;
}

}  // namespace lockstep
