// One hook on one bucket, from its first call to its end.
#pragma once

#include "lockstep/ddp/gradient_bucket.h"
#include "lockstep/ddp/gradient_bucket_state_internal.h"
#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

class HookRun {
 public:
  HookRun(GradientBucket::State::Facts facts, const GradientBucket::State::Groups& groups,
          HookScratch& scratch);

  /// Runs the hook until it awaits a call. A hook that makes none makes a barrier, because the
  /// flags of a bucket are awaited. `hook` must outlive this object. Throws what the hook throws.
  void begin(const GradientHook& hook);
  /// Resumes the hook if the call that it awaits is done; if it `waits`, waits for that first.
  /// Returns whether there was progress. Throws what the hook throws, and PeerError.
  bool advance(bool waits);
  /// Whether the hook has ended and all its calls are done.
  [[nodiscard]] bool has_ended() const noexcept { return ended_; }
  /// The hook is not resumed again.
  void give_up() noexcept { ended_ = true; }

  [[nodiscard]] GradientBucket::State& state() noexcept { return state_; }
  [[nodiscard]] const GradientBucket::State& state() const noexcept { return state_; }

 private:
  GradientBucket::State state_;
  GradientBucket bucket_;
  HookTask task_;  // empty for a hook of the simple form
  bool ended_ = false;
};

}  // namespace lockstep
