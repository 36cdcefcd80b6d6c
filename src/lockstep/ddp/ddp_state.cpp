#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/call_size.h"
#include "lockstep/ddp/batch_norm_calls_internal.h"
#include "lockstep/ddp/bucket_size.h"
#include "lockstep/ddp/buffer_sync.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/ddp/operator_trace.h"
#include "lockstep/ddp/option_check_internal.h"

namespace lockstep {
namespace {

DdpOptions with_process_trace(DdpOptions options) {
  if (options.trace == nullptr) options.trace = process_trace();
  return options;
}

}  // namespace

Ddp::State::State(torch::nn::Module& the_module, const ProcessGroup& the_group,
                  const DdpOptions& the_options)
    : module(the_module),
      group(agree_on_group(the_group, the_options)),
      options(with_process_trace(the_options)),
      flat(the_module, group,
           {.gradient_buffers = the_options.gradient_buffers,
            .shard = the_options.shard,
            .copies = the_options.copies}) {
  flat.slots().listen(this);
  if (options.trace != nullptr) observe_operators(*options.trace);
  prepare();
}

Ddp::State::~State() {
  if (synced) synced->stop();
  clean_redirections();
}

void Ddp::State::sync_batch_norms() {
  if (synced) std::exchange(synced, nullptr)->stop();
  auto* const its = module.get();
  if (!options.sync_batch_norm || group.size() == 1 || its == nullptr) return;
  synced = std::make_shared<SyncedBatchNorms>(*its, group);
  redirect_batch_norms(synced);
}

void Ddp::State::prepare() {
  // First, because a call below may throw: the old reducers refer to old slots and the old group.
  reducers.clear();
  ring.reset();
  make_hooked();
  std::size_t total = 0;
  for (int i = 0; i < flat.num_segments(); ++i) total += flat.values(i).nbytes();
  bucket_bytes = options.bucket_bytes == kAutotune ? kDefaultBucketBytes : options.bucket_bytes;
  if (bucket_bytes == kDefaultBucketBytes) {
    bucket_bytes = best_call_bytes(group, total).value_or(bucket_bytes);
  }
  make_reducers(plan());
  planned_by_arrival = false;
  check = {};
  forget_partial();
  marks.emplace(flat);
  phase = Phase::idle;
  if (gradients == StepGradients::averaged) gradients = StepGradients::open;
  buffers = {flat.gradient_buffer(), flat.gradient_buffer()};
  tally = {};
  group_flags = {};
  attempts = 0;  // the ranks of a new group may have different numbers
  followed.reset();
  ends.reset();
  end_is_due = false;

  flat.broadcast_values();
  if (options.buffers != BufferSync::never) copy_buffers(0);
  sync_batch_norms();
  if (group.size() > 1) {
    ends.emplace(group);
    followed =
        std::make_shared<FollowedGroups>(FollowedGroups{group, synced, flat.values(0).device()});
    follow_on_this_thread(followed);
  }
  if (options.bucket_bytes != kAutotune) return;
  bucket_bytes = measure_bucket_bytes(group, total, flat.values(0).device());
  make_reducers(plan());
}

void Ddp::State::copy_buffers(int root, const std::vector<at::Tensor>& except) const {
  if (module.get() != nullptr) broadcast_buffers(*module.get(), group, root, except);
}

void Ddp::State::abandon_step() {
  flat.use_gradient_buffer(buffers.filling);
  if (flat.slots().any(GradientState::fresh, buffers.filling)) gradients = StepGradients::invalid;
  tally = {};
}

void Ddp::State::on_backward() {
  if (!watch.is_running()) enter_backward();  // the first gradient of a backward
  watch.on_backward();
}

void Ddp::State::before_gradient(int index, GradientState state) {
  if (state == GradientState::stale) expect_no_average(index);
  marks->expect_unchanged(index, buffers.filling);
}

void Ddp::State::after_gradient(int index) {
  marks->clear(index);
  if (phase != Phase::reducing) marks->set(index, buffers.filling);
  ready(index);
}

void Ddp::State::after_undefined_gradient(int index) { ready(index); }

void Ddp::State::ready(int index) {
  if (phase == Phase::reducing) {
    filled().ready(index);
  } else {
    reduced().advance();
  }
}

void Ddp::State::enter_backward() {
  group.page().enter(StepPart::backward);
  const auto micro_batch = next_phase();
  if (no_sync_scopes == 0) count_attempt();
  begin_micro_batch();
  expect_shards_in_use();
  flat.set_averaged({});
  const auto next = lockstep::enter_backward(phase, micro_batch, buffers);
  flat.use_gradient_buffer(buffers.filling);
  if (rules().by_count && !tally.is_counted) {
    throw UsageError(
        "gradients are normalized by count, but ddp.count(n) was not called before backward(): "
        "call it with the number of samples summed in the loss");
  }
  discard_invalid_gradients();
  phase = next;
  if (phase != Phase::reducing) return;
  auto of_step = tally;
  of_step.add_batch();
  begin_reduction(of_step);
}

void Ddp::State::ended() {
  tally.add_batch();
  gradients = StepGradients::open;
  end_micro_batch();
  if (phase == Phase::reducing) start_rest();
}

void Ddp::State::settle() {
  if (phase == Phase::reducing) finish_reduction();
  phase = leave_backward(phase);
}

void Ddp::State::sit_out() {
  const auto micro_batch = next_phase();
  if (no_sync_scopes == 0) count_attempt();
  flat.use_gradient_buffer(buffers.filling);
  flat.set_averaged({});
  discard_invalid_gradients();
  begin_micro_batch();
  tally.add_empty();
  gradients = StepGradients::open;
  or_give_up([&] {
    follow(micro_batch);
    if (micro_batch != Phase::reducing) return;
    finish_reduction();
    phase = Phase::idle;
  });
}

// Without sync_batch_norm the ranks may have different numbers of micro-batches under no_sync().
void Ddp::State::begin_micro_batch() {
  end_micro_batch();  // of a backward that threw before its first gradient
  end_is_due = ends && (options.sync_batch_norm || no_sync_scopes == 0);
}

void Ddp::State::end_micro_batch() {
  if (std::exchange(end_is_due, false)) ends->end();
}

// Makes the calls of the other ranks until they have ended the micro-batch, and begins its
// reduction if it has one.
void Ddp::State::follow(Phase micro_batch) {
  const auto begin = [&] {
    if (micro_batch != Phase::reducing) return;
    if (phase == Phase::reducing) return reduced().advance();
    phase = Phase::reducing;
    begin_reduction(tally);
    start_rest();
  };
  const bool follows = end_is_due;
  end_micro_batch();  // at once: this rank makes no call of its own in it
  if (follows) follow_peers(followed, *ends, begin);
  begin();
}

void Ddp::State::start() {
  count_attempt();
  flat.use_gradient_buffer(buffers.filling);
  flat.set_averaged({});
  discard_invalid_gradients();
  or_give_up([this] {
    collect_assigned();
    phase = Phase::started;
    begin_reduction(tally);
    start_rest();
  });
  if (flat.num_gradient_buffers() == 1) return;
  tally = {};
  buffers.fill_next(flat.num_gradient_buffers());
  flat.use_gradient_buffer(buffers.filling);
}

void Ddp::State::finish() {
  if (!has_to_wait(phase)) return;
  or_give_up([this] {
    if (buffers.are_apart()) collect_assigned();
    flat.use_gradient_buffer(buffers.reducing);
    finish_reduction();
    phase = Phase::idle;
  });
  // If no gradient arrived meanwhile, continue as with one buffer.
  const bool is_filled =
      tally.micro_batches > 0 || flat.slots().any(GradientState::fresh, buffers.filling);
  if (!is_filled) buffers.fill_reduced();
}

// Of the next micro-batch.
Phase Ddp::State::next_phase() const {
  if (partial && no_sync_scopes == 0) return Phase::reducing;
  return next_micro_batch(tally, rules(), no_sync_scopes);
}

void Ddp::State::forget_partial() {
  if (options.reduce_each_micro_batch) partial.emplace();
}

// Averages of a part of the step are in flat. At the end of the step, divides their sum.
void Ddp::State::note_partial(const std::vector<bool>& used) {
  partial->add(tally, group_flags, used);
  group_flags.any = partial->any();
  if (!ends_step) return;
  group_flags.sum = partial->weight();
  if (group_flags.sum > 0) flat.divide_sums(group_flags.sum);
}

void Ddp::State::count_attempt() {
  ++attempts;
  attempted = true;
}

// Gradients assigned directly to `.grad` count as one micro-batch.
void Ddp::State::collect_assigned() {
  const auto& slots = flat.slots();
  for (int i = 0; i < num_parameters(); ++i) {
    if (slots.state(i) != GradientState::assigned) continue;
    slots.collect(i);
    tally.add_assigned();
  }
}

void Ddp::State::begin_reduction(const StepTally& of_step) {
  buffers.reduce_filled();
  expect_not_captured();
  ends_step = !partial || phase == Phase::started || of_step.micro_batches >= rules().accumulate;
  const auto part = partial ? partial->rest_of(of_step) : of_step;
  if (partial && partial->is_empty()) flat.begin_sums();
  auto flags = StepFlags::of(weight_of(part, rules()), check.digest(),
                             /*sits_out=*/(ends_step ? of_step : part).batches == 0);
  if (!check.is_known()) flags.any |= StepFlags::kNoDigest;
  filled().begin(flags, attempts);
}

void Ddp::State::start_rest() {
  bool all_arrived = true;
  for (int i = 0; i < num_parameters(); ++i) {
    marks->expect_unchanged(i, buffers.filling);
    const auto& parameter = flat.parameters()[static_cast<std::size_t>(i)].tensor;
    const bool arrived = flat.slots().state(i) == GradientState::fresh || filled().contributes(i);
    all_arrived = all_arrived && (arrived || !parameter.requires_grad());
  }
  // A parameter without a gradient may have been replaced in the module.
  if (!all_arrived) flat.expect_in_place();
  filled().start_rest();
}

void Ddp::State::finish_reduction() {
  auto& reducer = reduced();
  group_flags = reducer.finish();
  if (ends) (void)ends->all_ended();  // they have: this completes the barrier here
  if (has(group_flags, StepFlags::kFailed))
    report_failed_ranks(reducer.has_failed(), reducer.number());
  if (partial) note_partial(reducer.used());
  const bool is_averaged = ends_step && group_flags.sum > 0;
  gradients = is_averaged ? StepGradients::averaged : StepGradients::open;
  const auto& used = partial ? partial->used() : reducer.used();
  flat.set_averaged(is_averaged ? used : std::vector<bool>());
  // The next optimizer step may change parameters whose gradient waits in another buffer.
  marks->clear();
  // By now the device has usually done the step before.
  if (options.trace != nullptr && record.device) lockstep::trace(*record.device, *options.trace);
  record = reducer.record();
  non_finite.assign(reducer.non_finite().begin(), reducer.non_finite().end());
  non_finite_result.reset();
  report_non_finite();
  if (!ends_step) return group.page().enter(StepPart::other);
  forget_partial();
  if (!buffers.are_apart()) tally = {};
  if (options.trace != nullptr) trace(record, *options.trace);
  if (!group_flags.all_equal && !has(group_flags, StepFlags::kNoDigest)) check.report(flat, group);
  check.look(flat, group.size());
  if (group_flags.first_present >= 0) {
    if (options.buffers == BufferSync::each_step) {
      copy_buffers(group_flags.first_present,
                   synced ? synced->buffers() : std::vector<at::Tensor>());
    }
    if (!planned_by_arrival) replan();
  }
  if (hooked != nullptr) hooked->choose_if_due();
  if (check.begins_round()) flat.expect_in_place();
  group.page().enter(StepPart::other);
}

}  // namespace lockstep
