// Reduces gradients bucket by bucket while backward still computes others. Two verbs: a gradient is
// ready, and all that can be ready is. It knows nothing of autograd; ddp.cpp calls it.
//
// Words: a parameter is *touched* when a gradient came since the last reduction, in any micro-step;
// *used* when it is touched on some rank. Who is untouched contributes what is in `.grad` (an old
// gradient, equal on all ranks), or zeros. Used on no rank: `.grad` is left as it was.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

class Reducer {
 public:
  /// For gradients in buffer `buffer` of `flat`, which outlives it. That buffer is in use while a
  /// verb below runs, advance() and abandon() apart.
  Reducer(FlatParameters& flat, int buffer, const ProcessGroup& group, BucketPlan plan);

  /// A gradient of `parameter` came, or was there already; also between reductions.
  void touch(int parameter);
  [[nodiscard]] bool is_touched(int parameter) const;
  /// Whether there are gradients that wait for a reduction. What the user dropped is none.
  [[nodiscard]] bool any_touched() const;

  /// Begins a reduction. `riders` travel with each bucket.
  void begin(const Riders& riders);
  /// Nothing more will come for `parameter`: starts what is full, in order, without waiting.
  /// Throws UsageError, naming it, when that was said before.
  void ready(int parameter);
  /// Nothing more will come at all: starts what is left. Then is_begun() is still true.
  void start_rest();
  /// What was started goes on a little, without waiting.
  void advance();
  /// Waits; gradients are averaged then. Returns what all ranks' riders say.
  JoinedRiders finish();
  /// Gives up what has begun, since something threw, and forgets what was touched. Waits for what
  /// was started, as the other ranks read this memory until then; what that throws, the group's
  /// next call throws.
  void abandon() noexcept;

  [[nodiscard]] bool is_begun() const noexcept { return begun_; }
  /// Parameters that had a non-finite gradient here in the last reduction.
  [[nodiscard]] std::span<const int> non_finite() const noexcept { return non_finite_; }
  /// The parameters in the order in which they became ready last.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return arrival_; }
  [[nodiscard]] const StepRecord& record() const noexcept { return record_; }
  [[nodiscard]] const BucketPlan& plan() const noexcept { return plan_; }

 private:
  [[nodiscard]] bool takes_part(const Bucket& bucket) const;
  void start_full_buckets();
  void start(std::size_t index);
  void settle_touched(const Bucket& bucket);
  void prepare_untouched(const Bucket& bucket);
  [[nodiscard]] Riders riders_of(std::size_t index) const;
  [[nodiscard]] bool trains(int parameter) const;
  /// By parameter, whether it was used. Collective where `joined` says that one is unused.
  [[nodiscard]] std::vector<bool> find_used(const JoinedRiders& joined) const;

  FlatParameters& flat_;
  int buffer_;
  ProcessGroup group_;
  const BucketPlan plan_;
  std::vector<at::Tensor> ranges_;  // of gradients, by bucket
  std::vector<std::string> names_;  // of their calls
  std::vector<bool> touched_;       // by parameter
  bool begun_ = false;

  // Of the reduction that has begun.
  Riders riders_;
  std::vector<bool> ready_;                       // by parameter
  std::vector<int> missing_;                      // by bucket: parameters that are not ready
  std::vector<Work> works_;                       // by bucket, as far as started
  std::vector<std::pair<int, at::Tensor>> kept_;  // gradients of untouched parameters
  std::vector<int> arrival_;
  std::vector<int> non_finite_;
  StepRecord record_;
};

}  // namespace lockstep
