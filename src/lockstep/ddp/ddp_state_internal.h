// What a Ddp does when gradients come and reductions begin and end; ddp.cpp has the verbs that
// users call.
//
// A backward is watched from its first gradient to its end: only then is it certain which gradients
// did not come. There is a reducer for each buffer of gradients. Backward *fills* one of them; with
// a second one, start() reduces what was filled while backward fills the other, and wait() shows
// the averages as `.grad` until the next backward() or start(). step_phase.h decides what may
// follow what; here it is done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/backward_watch.h"
#include "lockstep/ddp/bucket_reduction.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/ddp/step_phase.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/ddp/value_marks_internal.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/observed_module.h"

namespace lockstep {

struct Ddp::State final : GradientListener, BackwardWatch::Listener {
  /// Collective, as the Ddp's.
  State(torch::nn::Module& the_module, const ProcessGroup& the_group,
        const DdpOptions& the_options);

  void on_backward() override;
  void before_gradient(int index, GradientState state) override;
  void after_gradient(int index) override;
  void after_undefined_gradient(int index) override;
  void ended() override;
  void settle() override;
  void failed() noexcept override { give_up(); }

  /// Everything that a new model or group needs, before any gradient comes. Collective.
  void prepare();
  /// Buffers from rank `root` to all, unless the module is gone. Collective.
  void copy_buffers(int root) const;
  /// Before parameters and gradients move: `.grad` is what waits for a reduction.
  void keep_pending();

  /// Throws UsageError while gradients are those of a step that failed, or of another group.
  void expect_unspoiled();

  /// A reduction that no backward begins: of what is there. finish() waits for it.
  void start();
  void finish();
  /// A micro-batch without a batch, with a reduction where one is due.
  void sit_out();
  /// Whatever came of this step is of no use. A reduction that has begun is completed, since the
  /// other ranks make its calls too; where it is not too late they hear that this rank failed.
  void give_up() noexcept;

  /// What should_step() says.
  [[nodiscard]] bool is_due() const;
  /// What non_finite() says.
  [[nodiscard]] bool is_non_finite();
  /// In the destructor: what the user should know, to the log.
  void report_at_end();

  [[nodiscard]] Reducer& filled() { return reducers[static_cast<std::size_t>(buffers.filling)]; }
  [[nodiscard]] Reducer& reduced() { return reducers[static_cast<std::size_t>(buffers.reducing)]; }

  ObservedModule module;
  ProcessGroup group;  // of this Ddp alone
  DdpOptions options;
  FlatParameters flat;
  std::size_t bucket_bytes = 0;
  std::unique_ptr<BucketReduction> reduction;
  std::vector<Reducer> reducers;  // by gradient buffer
  ReplicaCheck check;
  bool planned_by_arrival = false;
  std::optional<ValueMarks> marks;  // where no_sync() left a gradient

  // Where this rank is in a step.
  Phase phase = Phase::idle;
  StepGradients gradients = StepGradients::open;
  GradientBuffers buffers;
  StepTally tally;
  int no_sync_scopes = 0;
  BackwardWatch watch{*this};

  // Backwards outside no_sync(), calls of sit_out() and start() so far, failed ones too: in step on
  // all ranks.
  std::int64_t attempts = 0;
  bool attempted = false;  // ever

  // Of the last reduction.
  GroupFlags group_flags;
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
  void expect_no_average(int index) const;
  void enter_backward();
  void ready(int index);
  void count_attempt();
  void collect_assigned();
  void begin_reduction(const StepTally& of_step);
  void start_rest();
  void finish_reduction();
  void make_reducers(const BucketPlan& plan);
  void replan();
  [[nodiscard]] int num_parameters() const { return static_cast<int>(flat.parameters().size()); }
  [[nodiscard]] StepRules rules() const {
    return {.by_count = options.normalize == Normalize::by_count, .accumulate = options.accumulate};
  }
};

}  // namespace lockstep
