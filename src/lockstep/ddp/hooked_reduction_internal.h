// A reduction by a gradient hook: runs the hook for each bucket, resumes its steps, and agrees at
// the end of a step whether it succeeded on all ranks. gradient_bucket.h defines the order of
// calls.
//
// Failure: a hook may throw on one rank at any place. Only the hook knows which calls it would have
// made, and the other ranks wait in them. So from then on this rank runs no hook; at the end of the
// step it takes part in the calls that the others have entered, with zeros and StepFlags::kFailed,
// until all ranks know. A barrier in a group of its own tells which ranks know: a rank whose hook
// has thrown enters it before it follows the others, the others when the flags of the step say that
// it failed. When all have entered it, no rank makes a call that another has not seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/bucket_reduction.h"
#include "lockstep/ddp/gradient_bucket.h"
#include "lockstep/ddp/gradient_bucket_state_internal.h"
#include "lockstep/ddp/gradient_hook.h"
#include "lockstep/ddp/hook_run_internal.h"

namespace lockstep {

class HookedReduction final : public BucketReduction {
 public:
  /// For gradients on `device`. Collective: makes groups of the ranks of `group`.
  HookedReduction(const ProcessGroup& group, at::Device device, GradientHook hook);

  /// The parameters of each bucket. Discards the memory of GradientBucket::scratch().
  void set_buckets(std::vector<std::vector<BucketParameter>> parameters);
  /// After a step: measures the candidates of GradientHook::fastest_of(), when it is time.
  /// Collective. Throws PeerError, and what a candidate throws.
  void choose_if_due();

  void begin() override;
  [[nodiscard]] int num_ranks() const override { return groups_.gradients.size(); }
  [[nodiscard]] std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                  const BucketCall& call) override;
  [[nodiscard]] GroupFlags end(const GroupFlags& last) override;
  [[nodiscard]] bool computes() const noexcept override { return true; }
  [[nodiscard]] std::exception_ptr failure() const noexcept override { return failure_; }
  [[nodiscard]] std::vector<bool> combine_used(const std::vector<bool>& used) override;

  [[nodiscard]] const GradientHook& hook() const noexcept { return hook_; }
  /// Whether the hook has called report_non_finite() on this rank in the last step.
  [[nodiscard]] bool has_overflowed() const noexcept { return overflowed_; }

 private:
  class RunWork;

  /// The hook of bucket `index`.
  [[nodiscard]] const GradientHook& hook_of(int index) const;
  /// Continues the first bucket that has not ended. Returns whether there was progress.
  bool continue_front(bool waits);
  void advance();
  void fail() noexcept;
  [[nodiscard]] bool has_non_finite_result() const;
  void answer_until_all_know();

  GradientHook hook_;
  at::Device device_;
  GradientBucket::State::Groups groups_;
  std::optional<ProcessGroup> failures_;  // of the barrier; none with one rank
  std::unique_ptr<BucketReduction> plain_;
  std::vector<std::vector<BucketParameter>> parameters_;  // by bucket
  std::vector<at::Tensor> values_;                        // by bucket, of the last step
  HookScratch scratch_;
  std::vector<int> chosen_;  // by bucket, of the candidates; empty until they were measured
  std::int64_t steps_ = 0;   // that succeeded
  bool overflowed_ = false;

  // State of the reduction that has begun.
  std::vector<std::shared_ptr<HookRun>> runs_;  // in bucket order
  std::size_t front_ = 0;                       // the first one that has not ended
  std::exception_ptr failure_;
};

}  // namespace lockstep
