// What a Ddp does when gradients arrive and when reductions begin and end. ddp.cpp has the
// functions that users call; step_phase.h decides which transitions are valid; this class acts on
// them.
//
// A backward is watched from its first gradient to its end, because only then it is known which
// parameters got no gradient. There is one Reducer per gradient buffer. backward() *fills* one
// buffer. With two buffers, start() reduces the filled one while backward() fills the other, and
// wait() binds `.grad` to the averages until the next backward() or start().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/backward_watch.h"
#include "lockstep/ddp/bucket_reduction.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/gradient_hook.h"
#include "lockstep/ddp/gradient_ring.h"
#include "lockstep/ddp/hooked_reduction_internal.h"
#include "lockstep/ddp/partial_reductions.h"
#include "lockstep/ddp/peer_follower_internal.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/ddp/step_phase.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/ddp/synced_batch_norms_internal.h"
#include "lockstep/ddp/value_marks_internal.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/observed_module.h"

namespace lockstep {

struct Ddp::State final : GradientListener, BackwardWatch::Listener {
  /// Collective, as the constructor of Ddp.
  State(torch::nn::Module& the_module, const ProcessGroup& the_group,
        const DdpOptions& the_options);
  ~State() override;

  void on_backward() override;
  void before_gradient(int index, GradientState state) override;
  void after_gradient(int index) override;
  void after_undefined_gradient(int index) override;
  void ended() override;
  void settle() override;
  void failed() noexcept override { give_up(); }

  /// Resets all state for a new model or group, and copies rank 0's parameters and buffers.
  /// Collective.
  void prepare();
  /// Collective.
  void set_hook(GradientHook the_hook);
  /// Copies buffers, except these, from rank `root` to all ranks, unless the module has been
  /// destroyed. Collective.
  void copy_buffers(int root, const std::vector<at::Tensor>& except = {}) const;
  /// Before parameters and gradients move: what was not reduced yet is not part of a later step.
  void abandon_step();

  /// Resets the gradients that are left from a step that failed or from another group.
  void discard_invalid_gradients();

  /// Begins a reduction of the gradients that are there, without a backward. finish() waits for it.
  void start();
  void finish();
  /// A micro-batch without a batch; reduces if it is the last one of its step.
  void sit_out();
  /// Discards this step. A reduction that has begun is completed, because the other ranks make its
  /// calls too; if the last call is still to be made, it tells them that this rank failed.
  void give_up() noexcept;

  /// The result of should_step().
  [[nodiscard]] bool should_step() const;
  /// The result of non_finite().
  [[nodiscard]] bool is_non_finite();
  [[nodiscard]] std::vector<std::string> non_finite_parameters() const;
  /// Logs the first non-finite gradient of this rank, once it is known.
  void report_non_finite();
  /// Called by the destructor: logs the warnings that ~Ddp() documents.
  void report_at_end();

  [[nodiscard]] Reducer& filled() { return reducers[static_cast<std::size_t>(buffers.filling)]; }
  [[nodiscard]] Reducer& reduced() { return reducers[static_cast<std::size_t>(buffers.reducing)]; }

  ObservedModule module;
  ProcessGroup group;  // used by this Ddp only
  DdpOptions options;
  FlatParameters flat;
  std::size_t bucket_bytes = 0;
  std::optional<GradientHook> hook;
  std::unique_ptr<BucketReduction> reduction;
  HookedReduction* hooked = nullptr;  // `reduction`, if there is a hook
  std::optional<GradientRing> ring;   // with Shard::gradients
  std::vector<Reducer> reducers;      // by gradient buffer
  ReplicaCheck check;
  bool planned_by_arrival = false;
  std::shared_ptr<SyncedBatchNorms> synced;  // null without sync_batch_norm, and with one rank
  // What a rank that sits out needs; null with one rank.
  std::shared_ptr<FollowedGroups> followed;
  std::optional<MicroBatchEnds> ends;
  bool end_is_due = false;  // this micro-batch has not ended, and other ranks may wait for its end
  std::optional<ValueMarks> marks;  // of parameters with a gradient from no_sync()

  // The position of this rank within a step.
  Phase phase = Phase::idle;
  StepGradients gradients = StepGradients::open;
  GradientBuffers buffers;
  StepTally tally;
  bool ends_step = true;                     // the last reduction that has begun
  std::optional<PartialReductions> partial;  // with reduce_each_micro_batch
  int no_sync_scopes = 0;
  BackwardWatch watch{*this};

  // Number of backwards outside no_sync() and calls of sit_out() and start(), including failed
  // ones: equal on all ranks.
  std::int64_t attempts = 0;
  bool attempted = false;  // attempts was ever above 0, in any group

  // Results of the last reduction.
  GroupFlags group_flags;
  StepRecord record;
  std::vector<int> non_finite;
  std::optional<bool> non_finite_result;  // set once the gradients have been searched
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
  void expect_no_average(int index) const;
  void expect_not_captured() const;
  void expect_shards_in_use();
  void enter_backward();
  void ready(int index);
  void count_attempt();
  [[nodiscard]] Phase next_phase() const;
  void forget_partial();
  void note_partial(const std::vector<bool>& used);
  void collect_assigned();
  void begin_reduction(const StepTally& of_step);
  void start_rest();
  void finish_reduction();
  void make_hooked();
  [[nodiscard]] BucketPlan plan(std::span<const int> arrival = {}) const;
  void make_reducers(const BucketPlan& plan);
  void sync_batch_norms();
  void begin_micro_batch();
  void end_micro_batch();
  void end_failed_micro_batch() noexcept;
  void follow(Phase micro_batch);
  void replan();
  [[nodiscard]] int num_parameters() const { return static_cast<int>(flat.parameters().size()); }
  [[nodiscard]] StepRules rules() const {
    return {.by_count = options.normalize == Normalize::by_count, .accumulate = options.accumulate};
  }
};

}  // namespace lockstep
