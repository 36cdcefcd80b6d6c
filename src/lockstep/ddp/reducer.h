// Reduces gradients bucket by bucket while backward() still computes others. ready() marks one
// gradient; start_rest() and finish() close the step. The class depends neither on autograd nor on
// the group: ddp_state.cpp calls it, and a BucketReduction makes the collective calls.
//
// Words: a parameter *contributes* if its gradient is fresh when its bucket starts, or before that
// when it moves: a gradient has arrived since the last reduction, in any micro-batch, and the user
// has not reset it. A parameter
// is *used* if it contributes on at least one rank. A parameter with no new gradient on this rank
// contributes its current `.grad`, which is stale and equal on all ranks, or zeros. If a parameter
// is used on no rank, its `.grad` does not change.
//
// With Shard::gradients, buckets share memory (gradient_ring.h). A gradient moves there from its
// loose slot when it is ready, on a GPU when its bucket starts, and waits for an earlier bucket in
// the same memory: in finish(), and briefly in ready(), never in start_rest() and advance().
// Another rank, which starts that bucket late because it does not use a parameter of it, may need
// other calls of this one meanwhile.
//
// Every rank makes all calls of a reduction that it has begun, also when its backward() fails. The
// last call is made only after backward() has ended, and its flags tell whether it failed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/ddp/bucket_reduction.h"
#include "lockstep/ddp/gradient_ring.h"
#include "lockstep/ddp/step_flags.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/flat/gradient_slot.h"
#include "lockstep/trace/rank_page.h"

namespace lockstep {

/// The beginning of the names of a reduction's calls: "gradients 3".
constexpr std::string_view kGradientsName = "gradients ";

struct ReducerOptions {
  bool timed = false;    // the device's times of buckets on a GPU are in record()
  bool sharded = false;  // after finish() every `.grad` is undefined: slots hold this rank's shards
  bool waits = true;     // ready() may wait for memory: backward makes no other calls
  // For loose slots: where the buckets are, and what keeps this rank's shards of a bucket when
  // it has been reduced, with the flags of its call. Otherwise empty.
  std::vector<RingBucket> ring = {};
  std::function<void(int bucket, const GroupFlags& flags)> keep = {};
};

class Reducer {
 public:
  /// Reduces the gradients in `buffer` of `slots`; `ranges` are the buckets of `plan` in that
  /// buffer. `slots` and `reduction` must outlive it. The functions below, except advance() and
  /// forget(), are called while `buffer` is the current one. The current bucket is noted in `page`.
  Reducer(const GradientSlots& slots, int buffer, BucketPlan plan, std::vector<at::Tensor> ranges,
          BucketReduction& reduction, RankPage page = {}, ReducerOptions options = {});
  Reducer(Reducer&&) = default;

  /// Begins a reduction. Each bucket's call carries `flags`. `number` counts backwards and is part
  /// of the first call's signature, so that ranks in different backwards are detected.
  void begin(const CallFlags& flags, std::int64_t number);
  /// The gradient of `parameter` is final. Starts the buckets that are complete, in order, except
  /// the last one. Waits for nothing but memory of a ring, and for that briefly.
  /// Throws UsageError that names the parameter if it was ready before.
  void ready(int parameter);
  /// All gradients are final: starts the remaining buckets whose memory is free; advance() and
  /// finish() start the others. is_begun() stays true.
  void start_rest();
  /// backward() has failed: starts the remaining buckets with StepFlags::kFailed. Call finish()
  /// next.
  void start_rest_as_failed();
  /// Makes progress on started buckets, and after start_rest() starts others, without waiting.
  void advance();
  /// Waits for all buckets; on a GPU the current stream waits for the device. Returns the reduced
  /// flags; gradients are averaged unless StepFlags::kFailed is set in them. Throws PeerError.
  GroupFlags finish();
  /// Discards the reduction and marks all gradients of the buffer stale.
  void forget() noexcept;

  /// Whether there are calls to make or to wait for.
  [[nodiscard]] bool is_begun() const noexcept { return begun_; }
  /// Whether start_rest_as_failed() was called in the last reduction, or a hook has thrown.
  [[nodiscard]] bool has_failed() const noexcept {
    return has(flags_, StepFlags::kFailed) || reduction_.failure() != nullptr;
  }
  [[nodiscard]] std::int64_t number() const noexcept { return number_; }
  /// Whether the bucket of `parameter` has started, or has its memory, with a fresh gradient of it.
  [[nodiscard]] bool contributes(int parameter) const {
    return contributes_[static_cast<std::size_t>(parameter)];
  }
  /// The parameters whose gradient was non-finite on this rank in the last reduction.
  [[nodiscard]] std::span<const int> non_finite() const noexcept { return non_finite_; }
  /// By parameter, whether it was used in the last reduction: equal on all ranks.
  [[nodiscard]] const std::vector<bool>& used() const noexcept { return used_; }
  /// The parameters in the order in which they became ready in the last reduction.
  [[nodiscard]] std::span<const int> arrival() const noexcept { return arrival_; }
  [[nodiscard]] const StepRecord& record() const noexcept { return record_; }
  [[nodiscard]] const BucketPlan& plan() const noexcept { return plan_; }

 private:
  [[nodiscard]] bool needs_reduction(const Bucket& bucket) const;
  /// How long a bucket waits for its memory.
  enum class Patience { none, little, endless };
  /// Of ready().
  [[nodiscard]] Patience patience() const noexcept;

  void start_full_buckets(std::size_t end, Patience patience);
  void advance_started();
  [[nodiscard]] bool make_room(std::size_t index, Patience patience);
  [[nodiscard]] bool await(std::size_t index, Patience patience);
  void settle(std::size_t index);
  void start(std::size_t index);
  void launch(std::size_t index);
  void collect(const Bucket& bucket);
  void move_in(std::size_t index);
  void move(int parameter, const at::Tensor& to);
  void move_early(int parameter);
  void note_times();
  [[nodiscard]] CallFlags flags_of(std::size_t index) const;
  [[nodiscard]] bool trains(int parameter) const;
  [[nodiscard]] const at::Tensor& slot_of(int parameter) const;
  /// By parameter, whether it is used. Collective if a rank has set StepFlags::kUnused.
  [[nodiscard]] std::vector<bool> find_used(const GroupFlags& all) const;

  const GradientSlots& slots_;
  int buffer_;
  BucketPlan plan_;
  std::vector<at::Tensor> ranges_;  // of gradients, by bucket
  BucketReduction& reduction_;
  RankPage page_;
  std::vector<std::string> names_;  // of calls, by bucket
  ReducerOptions options_;
  bool begun_ = false;

  // State of the reduction that has begun.
  bool has_ended_ = false;     // its backward: start_rest() was called
  bool is_impatient_ = false;  // a short wait was in vain: ready() waits no more
  CallFlags flags_;
  std::int64_t number_ = 0;
  int calls_ = 0;
  std::size_t last_ = 0;                          // the last bucket that takes part
  std::vector<bool> ready_;                       // by parameter
  std::vector<bool> contributes_;                 // by parameter, valid once its bucket has started
  std::vector<bool> is_moved_;                    // by parameter: before its bucket has started
  std::vector<int> missing_;                      // by bucket: parameters that are not ready
  std::vector<std::pair<int, at::Tensor>> kept_;  // stale gradients
  // By bucket, for started ones; null for a bucket that does not take part.
  std::vector<std::unique_ptr<BucketWork>> works_;
  std::vector<bool> settled_;  // by bucket: reduced, and kept
  std::vector<int> arrival_;
  std::vector<int> non_finite_;
  std::vector<bool> used_;
  StepRecord record_;
  Ticks launching_ = 0;                       // StepRecord::launching
  Ticks waited_ = 0;                          // for room, since begin()
  std::shared_ptr<DeviceTimeline> timeline_;  // of the buckets on a GPU, if they are timed
};

}  // namespace lockstep
