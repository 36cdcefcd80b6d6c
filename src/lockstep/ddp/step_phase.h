// Where a Ddp stands within a step, as values, and what may follow: pure functions without
// LibTorch. Ddp::State acts on what they decide.
//
// A *micro-batch* is one backward, or one sit_out() on a rank without a batch. A *step* is the
// micro-batches that are averaged together; a reduction ends it.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Phase {
  idle,          // no backward runs and no reduction is under way
  accumulating,  // a backward runs and leaves its gradients to a later reduction
  reducing,      // a backward or sit_out() runs that ends with a reduction
  started,       // start() has begun a reduction, wait() has not ended it
  overlapping,   // started, and a backward fills the other gradient buffer meanwhile
};

/// What the gradients are between two backwards.
enum class StepGradients {
  open,      // of part of a step, or none
  averaged,  // a step is due
  spoiled,   // left from a step that failed, or of another group: they must be zeroed first
};

/// Which buffer of gradients is which.
struct GradientBuffers {
  int filling = 0;   // backward writes to it
  int reducing = 0;  // that of the last reduction

  [[nodiscard]] bool are_apart() const noexcept { return filling != reducing; }
  /// A reduction of what was filled begins.
  void reduce_filled() noexcept { reducing = filling; }
  /// Backward fills the next of `count` buffers from now on.
  void fill_next(int count) noexcept { filling = (filling + 1) % count; }
  /// Nothing was filled since the last reduction: backward fills that buffer again.
  void fill_reduced() noexcept { filling = reducing; }
};

/// What the options say about steps.
struct StepRules {
  bool by_count = false;  // gradients are divided by samples
  int accumulate = 1;     // micro-batches per step
};

/// What was counted since the last reduction began.
struct StepTally {
  int micro_batches = 0;
  int batches = 0;  // micro-batches in which this rank had a batch
  std::int64_t samples = 0;
  bool is_counted = false;  // count() was called for the coming backward

  /// ddp.count(): the coming backward is of so many samples.
  void count(std::int64_t of_batch) noexcept;
  void add_batch() noexcept;
  /// A micro-batch without a batch.
  void add_empty() noexcept;
  /// Gradients that the user assigned are a batch, where there was none.
  void add_assigned() noexcept;
};

/// The weight of this rank in an average: samples, batches, or 1 for a rank that had a batch.
[[nodiscard]] std::int64_t weight_of(const StepTally& tally, const StepRules& rules) noexcept;

/// What the next micro-batch is by itself: reducing when it is the last of its step, accumulating
/// when it is not, or when a NoSync scope is open.
[[nodiscard]] Phase next_micro_batch(const StepTally& tally, const StepRules& rules,
                                     int no_sync_scopes) noexcept;

/// The phase of a backward that begins in `now`, idle or started, and is `micro_batch` by itself.
/// Throws UsageError, with what to do, where a reduction is in the way.
[[nodiscard]] Phase enter_backward(Phase now, Phase micro_batch, const GradientBuffers& buffers);
/// After a backward that ended well: started when it overlapped a reduction, else idle.
[[nodiscard]] Phase leave_backward(Phase now) noexcept;
[[nodiscard]] bool runs_backward(Phase now) noexcept;

/// Whether wait() has a reduction to end. Throws UsageError in the middle of a backward that has
/// one under way.
[[nodiscard]] bool has_to_wait(Phase now);
/// Throws UsageError, naming `verb`, unless `now` is idle.
void expect_idle(Phase now, const char* verb);
/// The same for count(), which may also come while a reduction of the other buffer is under way: it
/// is of other samples.
void expect_countable(Phase now, const GradientBuffers& buffers);

}  // namespace lockstep
