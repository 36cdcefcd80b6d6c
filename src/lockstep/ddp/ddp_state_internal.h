// What a Ddp does when gradients come and reductions begin and end; ddp.cpp has the verbs that
// users call.
//
// A backward is watched from its first gradient to its end: only then is it certain which gradients
// did not come. There is a reducer for each buffer of gradients. Backward *fills* one of them; with
// a second one, start() reduces what was filled while backward fills the other, and wait() shows
// the averages as `.grad` until the next backward() or start().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/backward_watch.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/ddp/value_marks_internal.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/observed_module.h"

namespace lockstep {

struct Ddp::State final : GradientListener, BackwardWatch::Listener {
  /// Collective, as the Ddp's.
  State(torch::nn::Module& the_module, const ProcessGroup& the_group,
        const DdpOptions& the_options);

  void gradient_comes(int index) override;
  void gradient_came(int index, bool defined) override;
  void ended() override;
  void settle() override;
  void failed() noexcept override { give_up(); }

  /// Everything that a new model or group needs, before any gradient comes. Collective.
  void prepare();
  /// Buffers from rank `root` to all, unless the module is gone. Collective.
  void copy_buffers(int root) const;
  /// Before parameters and gradients move: `.grad` is what waits for a reduction.
  void keep_pending();

  /// Throw UsageError where a verb cannot be: in the middle of a backward or a reduction; with
  /// gradients of part of a step.
  void expect_idle(const char* verb) const;
  void expect_unspoiled();

  /// A reduction that no backward begins: of what is there. finish() waits for it.
  void start();
  void finish();
  /// A micro-step without a batch, with a reduction where one is due.
  void sit_out();
  /// Whatever came of this step is of no use. A reduction that has begun is completed, since the
  /// other ranks make its calls too; where it is not too late they hear that this rank failed.
  void give_up() noexcept;

  /// What step_due() says.
  [[nodiscard]] bool is_due() const;
  /// What non_finite() says.
  [[nodiscard]] bool is_non_finite();
  /// In the destructor: what the user should know, to the log.
  void report_at_end();

  /// Whether start() was called and finish() was not.
  [[nodiscard]] bool is_started() const { return of(reducing).is_begun(); }
  [[nodiscard]] Reducer& filled() { return reducers[static_cast<std::size_t>(filling)]; }
  [[nodiscard]] const Reducer& of(int buffer) const {
    return reducers[static_cast<std::size_t>(buffer)];
  }

  ObservedModule module;
  ProcessGroup group;  // of this Ddp alone
  DdpOptions options;
  FlatParameters flat;
  std::size_t bucket_bytes = 0;
  std::vector<Reducer> reducers;  // by gradient buffer
  int filling = 0;                // the buffer that backward writes to
  int reducing = 0;               // the buffer of the last reduction
  ReplicaCheck check;
  bool planned_by_arrival = false;
  std::optional<ValueMarks> marks;  // where no_sync() left a gradient

  // Since the last reduction began.
  int micro_steps = 0;
  int batches = 0;  // micro-steps that had one
  std::int64_t samples = 0;
  bool counted = false;  // for the coming backward

  // Backwards outside no_sync(), calls of sit_out() and start() so far, failed ones too: in step on
  // all ranks.
  std::int64_t attempts = 0;
  bool attempted = false;  // ever

  bool spoiled = false;  // gradients may be of part of a step: they must be zeroed first

  // Of the backward that runs.
  int paused = 0;        // NoSync scopes
  bool reduces = false;  // it ends with a reduction
  BackwardWatch watch{*this};

  // Of the last reduction.
  GroupFlags joined;
  bool due = false;  // to step with what it gave
  StepRecord record;
  std::vector<int> non_finite;
  std::optional<bool> non_finite_result;  // once it was looked for
  bool non_finite_reported = false;

 private:
  template <typename Action>
  void or_give_up(Action action) {
    try {
      action();
    } catch (...) {
      give_up();
      throw;
    }
  }

  void complete_calls() noexcept;
  [[noreturn]] void report_failed_ranks(bool here, std::int64_t number) const;
  void report_non_finite();
  void expect_joinable(int index) const;
  void enter_backward();
  void count_attempt();
  void count_micro_step(bool with_batch);
  void forget_counts() noexcept;
  void take_in_all();
  void begin_reduction(bool with_batch);
  void start_rest();
  void finish_reduction();
  void make_reducers(const BucketPlan& plan);
  void replan();
  [[nodiscard]] int num_parameters() const { return static_cast<int>(flat.parameters().size()); }
  [[nodiscard]] std::int64_t weight(int batches_in_all) const;
  [[nodiscard]] bool is_weighted() const {
    return options.normalize == Normalize::by_count || options.accumulate > 1;
  }
};

}  // namespace lockstep
