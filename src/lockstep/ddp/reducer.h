// Reduces gradients bucket by bucket while backward still computes others: ready() says that a
// gradient is in place, start_rest() that no other comes, finish() waits. It knows nothing of
// autograd and of the group: ddp_state.cpp calls it, a BucketReduction makes its collective calls.
//
// Terms: a parameter *contributes* when its gradient is fresh as its bucket starts: one came since
// the last reduction, in any micro-batch, and is still there. It is *used* when it contributes on
// some rank. One that does not contribute is reduced with what is in `.grad` (a stale gradient,
// equal on all ranks), or zeros. Used on no rank: `.grad` is left as it was.
//
// Every rank makes all calls of a reduction that it has begun, also when its backward fails: the
// last call is made only when the backward is known to have ended well or not, and says which.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/ddp/bucket_reduction.h"
#include "lockstep/ddp/step_flags.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/flat/gradient_slot.h"

namespace lockstep {

class Reducer {
 public:
  /// For gradients in buffer `buffer` of `slots`, which outlive it, as `reduction` does; `ranges`
  /// are the buckets of `plan` in that buffer. It is in use while a verb below runs, advance() and
  /// forget() apart.
  Reducer(const GradientSlots& slots, int buffer, BucketPlan plan, std::vector<at::Tensor> ranges,
          BucketReduction& reduction);
  Reducer(Reducer&&) = default;

  /// Begins a reduction. `flags` travel with each bucket. `number` is that of the backward, equal
  /// on all ranks: the signature of the first call has it, so that ranks that are not in the same
  /// backward are found.
  void begin(const CallFlags& flags, std::int64_t number);
  /// Nothing more will come for `parameter`: starts what is full, in order, without waiting, but
  /// for the last bucket. Throws UsageError, naming it, when that was said before.
  void ready(int parameter);
  /// Nothing more will come at all: starts what is left. Then is_begun() is still true.
  void start_rest();
  /// The backward has failed: starts what is left, and says so in it. finish() follows.
  void start_rest_as_failed();
  /// Continues with what was started, without waiting.
  void advance();
  /// Waits; gradients are averaged then, unless StepFlags::kFailed is set. Returns the flags of all
  /// ranks.
  GroupFlags finish();
  /// Forgets the reduction; gradients that came are stale from now on.
  void forget() noexcept;

  /// Whether there are calls to make or to wait for.
  [[nodiscard]] bool is_begun() const noexcept { return begun_; }
  /// Whether start_rest_as_failed() was called in the last reduction.
  [[nodiscard]] bool has_failed() const noexcept { return has(flags_, StepFlags::kFailed); }
  [[nodiscard]] std::int64_t number() const noexcept { return number_; }
  /// Parameters that had a non-finite gradient here in the last reduction.
  [[nodiscard]] std::span<const int> non_finite() const noexcept { return non_finite_; }
  /// The parameters in the order in which they became ready last.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return arrival_; }
  [[nodiscard]] const StepRecord& record() const noexcept { return record_; }
  [[nodiscard]] const BucketPlan& plan() const noexcept { return plan_; }

 private:
  [[nodiscard]] bool takes_part(const Bucket& bucket) const;
  void start_full_buckets(std::size_t end);
  void start(std::size_t index);
  void launch(std::size_t index);
  void collect(const Bucket& bucket);
  [[nodiscard]] CallFlags flags_of(std::size_t index) const;
  [[nodiscard]] bool trains(int parameter) const;
  [[nodiscard]] const at::Tensor& slot_of(int parameter) const;
  /// By parameter, whether it was used. Collective where `all` says that one is unused.
  [[nodiscard]] std::vector<bool> find_used(const GroupFlags& all) const;

  const GradientSlots& slots_;
  int buffer_;
  BucketPlan plan_;
  std::vector<at::Tensor> ranges_;  // of gradients, by bucket
  BucketReduction& reduction_;
  std::vector<std::string> names_;  // of calls, by bucket
  bool begun_ = false;

  // Of the reduction that has begun.
  CallFlags flags_;
  std::int64_t number_ = 0;
  int calls_ = 0;
  std::size_t last_ = 0;                          // the last bucket that takes part
  std::vector<bool> ready_;                       // by parameter
  std::vector<bool> contributes_;                 // by parameter, once its bucket has started
  std::vector<int> missing_;                      // by bucket: parameters that are not ready
  std::vector<std::pair<int, at::Tensor>> kept_;  // stale gradients
  // By bucket, as far as started; null for one that does not take part.
  std::vector<std::unique_ptr<BucketWork>> works_;
  std::vector<int> arrival_;
  std::vector<int> non_finite_;
  StepRecord record_;
};

}  // namespace lockstep
