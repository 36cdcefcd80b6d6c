// The state machine of a step, as values and pure functions without LibTorch. Ddp::State acts on
// their decisions.
//
// Words: a *micro-batch* is one backward(), or one sit_out() on a rank without a batch. A *step* is
// the micro-batches that are averaged together; a reduction ends it.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Phase {
  idle,          // no backward and no reduction
  accumulating,  // in a backward whose gradients a later reduction averages
  reducing,      // in a backward or sit_out() that ends with a reduction
  started,       // between start() and wait()
  overlapping,   // started, and in a backward that fills the other gradient buffer
};

/// What gradients are between two backwards.
enum class StepGradients {
  open,      // none, or those of an unfinished step
  averaged,  // ready for the optimizer
  invalid,   // left from a step that failed or from another group: the next backward discards them
};

/// The roles of the gradient buffers.
struct GradientBuffers {
  int filling = 0;   // backward() writes to it
  int reducing = 0;  // the last reduction works on it

  [[nodiscard]] bool are_apart() const noexcept { return filling != reducing; }
  /// A reduction of the filled buffer begins.
  void reduce_filled() noexcept { reducing = filling; }
  /// The next backward() fills the next of `count` buffers.
  void fill_next(int count) noexcept { filling = (filling + 1) % count; }
  /// No gradient arrived since the last reduction began: backward() fills that buffer again.
  void fill_reduced() noexcept { filling = reducing; }
};

/// The options that define a step.
struct StepRules {
  bool by_count = false;  // gradients are divided by the number of samples
  int accumulate = 1;     // micro-batches per step
};

/// Counts since the last reduction began.
struct StepTally {
  int micro_batches = 0;
  int batches = 0;  // micro-batches in which this rank had a batch
  std::int64_t samples = 0;
  bool is_counted = false;  // count() was called for the next backward

  /// ddp.count(): the weight of the next backward.
  void count(std::int64_t of_batch) noexcept;
  void add_batch() noexcept;
  /// A micro-batch without a batch.
  void add_empty() noexcept;
  /// Gradients that the user assigned count as one batch if there was none.
  void add_assigned() noexcept;
};

/// The weight of this rank in the average: its samples, its batches, or 1 if it had a batch.
[[nodiscard]] std::int64_t weight_of(const StepTally& tally, const StepRules& rules) noexcept;

/// The phase of the next micro-batch on its own: reducing if it is the last one of its step,
/// accumulating if it is not or if a NoSync scope is open.
[[nodiscard]] Phase next_micro_batch(const StepTally& tally, const StepRules& rules,
                                     int no_sync_scopes) noexcept;

/// The phase of a backward that begins in phase `now`, idle or started, with the result of
/// next_micro_batch().
/// Throws UsageError, with what to do, if a started reduction does not allow it.
[[nodiscard]] Phase enter_backward(Phase now, Phase micro_batch, const GradientBuffers& buffers);
/// The phase after a successful backward: started if it overlapped a reduction, otherwise idle.
[[nodiscard]] Phase leave_backward(Phase now) noexcept;
[[nodiscard]] bool runs_backward(Phase now) noexcept;

/// Whether wait() has a reduction to wait for. Throws UsageError during a backward that reduces or
/// overlaps a reduction.
[[nodiscard]] bool has_to_wait(Phase now);
/// Throws UsageError that names the function `verb` unless `now` is idle.
void expect_idle(Phase now, const char* verb);
/// The same for count(), which is also valid while the other buffer is being reduced: it counts the
/// samples of the next step.
void expect_countable(Phase now, const GradientBuffers& buffers);

}  // namespace lockstep
