#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ddp/bucket_size.h"
#include "lockstep/ddp/buffer_sync.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/ddp/option_check_internal.h"

namespace lockstep {

Ddp::State::State(torch::nn::Module& the_module, const ProcessGroup& the_group,
                  const DdpOptions& the_options)
    : module(the_module),
      group(agree_on_group(the_group, the_options)),
      options(the_options),
      flat(the_module, group, {.gradient_buffers = the_options.gradient_buffers}) {
  flat.slots().listen(this);
  prepare();
}

void Ddp::State::prepare() {
  for (int i = 0; i < flat.num_segments(); ++i) {
    auto values = flat.values(i);
    if (values.is_complex()) values = at::view_as_real(values);
    group.broadcast(values, 0, {.name = "parameters"}).wait();
  }
  if (options.buffers != BufferSync::never) copy_buffers(0);
  bucket_bytes = options.bucket_bytes;
  if (bucket_bytes == kAutotune) {
    std::size_t total = 0;
    for (int i = 0; i < flat.num_segments(); ++i) total += flat.gradients(i).nbytes();
    bucket_bytes = measure_bucket_bytes(group, total);
  }
  filling = flat.gradient_buffer();
  reducing = filling;
  make_reducers(plan_buckets(flat.layout(), bucket_bytes));
  planned_by_arrival = false;
  check = {};
  marks.emplace(flat);
  forget_counts();
  joined = {};
  due = false;
  attempts = 0;  // the ranks of another group may have made others
}

void Ddp::State::copy_buffers(int root) const {
  if (module.get() != nullptr) broadcast_buffers(*module.get(), group, root);
}

void Ddp::State::keep_pending() {
  flat.use_gradient_buffer(filling);
  spoiled = spoiled || filled().any_touched();
}

void Ddp::State::make_reducers(const BucketPlan& plan) {
  reducers.clear();
  for (int buffer = 0; buffer < flat.num_gradient_buffers(); ++buffer) {
    reducers.emplace_back(flat, buffer, group, plan);
  }
}

void Ddp::State::gradient_comes(int index) {
  if (!watch.is_running()) enter_backward();
  watch.attend();
  if (flat.parameters()[static_cast<std::size_t>(index)].tensor.grad().defined()) {
    expect_joinable(index);
  }
  if (filled().is_touched(index)) marks->expect_unchanged(index);
}

void Ddp::State::gradient_came(int index, bool defined) {
  if (!watch.is_running()) enter_backward();
  watch.attend();
  if (defined) {
    marks->clear(index);
    if (!reduces) marks->set(index);
    filled().touch(index);
  }
  if (reduces) {
    filled().ready(index);
  } else {
    reducers[static_cast<std::size_t>(reducing)].advance();
  }
}

void Ddp::State::enter_backward() {
  reduces = paused == 0 && micro_steps + 1 >= options.accumulate;
  if (paused == 0) count_attempt();
  if (is_started() && (reduces || filling == reducing)) {
    throw UsageError(
        filling == reducing
            ? "backward() was called between start() and wait() of a reduction: call "
              "wait() of what start() returned first. To run a backward meanwhile, set "
              "DdpOptions{.gradient_buffers = 2}"
            : "backward() was called between start() and wait() of a reduction, and "
              "would begin another: run it under no_sync()");
  }
  flat.use_gradient_buffer(filling);
  if (options.normalize == Normalize::by_count && !counted) {
    throw UsageError(
        "gradients are normalised by count, but nobody said before backward() how many samples the "
        "loss is a sum of: call ddp.count(n)");
  }
  expect_unspoiled();
  if (reduces) begin_reduction(/*with_batch=*/true);
}

void Ddp::State::ended() {
  count_micro_step(/*with_batch=*/true);
  if (reduces) start_rest();
}

void Ddp::State::settle() {
  if (reduces) finish_reduction();
}

void Ddp::State::sit_out() {
  if (paused == 0) count_attempt();
  flat.use_gradient_buffer(filling);
  expect_unspoiled();
  count_micro_step(/*with_batch=*/false);
  if (paused > 0 || micro_steps < options.accumulate) return;
  or_give_up([this] {
    begin_reduction(/*with_batch=*/false);
    start_rest();
    finish_reduction();
  });
}

void Ddp::State::start() {
  count_attempt();
  flat.use_gradient_buffer(filling);
  expect_unspoiled();
  or_give_up([this] {
    take_in_all();
    begin_reduction(/*with_batch=*/false);
    start_rest();
  });
  if (flat.num_gradient_buffers() == 1) return;
  forget_counts();
  filling = (filling + 1) % flat.num_gradient_buffers();
  flat.use_gradient_buffer(filling);
}

void Ddp::State::finish() {
  if (!is_started()) return;
  if (watch.is_running()) {
    throw UsageError("wait() of a reduction was called in the middle of a backward");
  }
  or_give_up([this] {
    if (filling != reducing) take_in_all();
    flat.use_gradient_buffer(reducing);
    finish_reduction();
  });
  // Where nothing came meanwhile, all is as if there were one buffer.
  if (filling != reducing && micro_steps == 0 && !filled().any_touched()) filling = reducing;
}

void Ddp::State::count_attempt() {
  ++attempts;
  attempted = true;
}

void Ddp::State::count_micro_step(bool with_batch) {
  ++micro_steps;
  batches += with_batch ? 1 : 0;
  counted = false;
  due = false;
}

void Ddp::State::forget_counts() noexcept {
  micro_steps = 0;
  batches = 0;
  samples = 0;
  counted = false;
}

std::int64_t Ddp::State::weight(int batches_in_all) const {
  if (options.normalize == Normalize::by_count) return samples;
  return options.accumulate > 1 ? batches_in_all : std::min(batches_in_all, 1);
}

// Gradients made by hand are a batch.
void Ddp::State::take_in_all() {
  bool any = false;
  for (int i = 0; i < num_parameters(); ++i) {
    if (!flat.slots().take_in(i) || filled().is_touched(i)) continue;
    any = true;
    filled().touch(i);
  }
  if (any && batches == 0) batches = 1;
}

void Ddp::State::begin_reduction(bool with_batch) {
  const int batches_in_all = batches + (with_batch ? 1 : 0);
  reducing = filling;
  filled().begin(
      StepFlags::of(weight(batches_in_all), check.digest(), /*sits_out=*/batches_in_all == 0),
      attempts);
}

void Ddp::State::start_rest() {
  bool all_came = true;
  for (int i = 0; i < num_parameters(); ++i) {
    if (filled().is_touched(i)) {
      marks->expect_unchanged(i);
    } else if (flat.parameters()[static_cast<std::size_t>(i)].tensor.requires_grad()) {
      all_came = false;
    }
  }
  // Parameters without a gradient may have left: the module may have others in their place.
  if (!all_came) flat.expect_in_place();
  filled().start_rest();
}

void Ddp::State::finish_reduction() {
  auto& reducer = reducers[static_cast<std::size_t>(reducing)];
  joined = reducer.finish();
  if (has(joined, StepFlags::kFailed)) report_failed_ranks(reducer.has_failed(), reducer.number());
  due = joined.sum > 0;
  // A step is due now: it may change parameters that wait with a gradient in another buffer.
  marks->clear();
  record = reducer.record();
  non_finite.assign(reducer.non_finite().begin(), reducer.non_finite().end());
  non_finite_result.reset();
  report_non_finite();
  if (filling == reducing) forget_counts();
  if (options.trace != nullptr) trace(record, StepClock::now(), *options.trace);
  if (!joined.all_equal) check.report(flat, group);
  check.look(flat);
  if (joined.first_present >= 0) {
    if (options.buffers == BufferSync::each_step) copy_buffers(joined.first_present);
    if (!planned_by_arrival) replan();
  }
  if (check.begins_round()) flat.expect_in_place();
}

// Once, after the first reduction: buckets in the order in which gradients really come.
void Ddp::State::replan() {
  planned_by_arrival = true;
  const auto& reducer = of(reducing);
  const auto count = static_cast<std::int64_t>(flat.parameters().size());
  auto order = at::full({count}, -1, at::kInt);
  auto* at = order.mutable_data_ptr<int>();
  std::copy(reducer.arrival().begin(), reducer.arrival().end(), at);
  group.broadcast(order, joined.first_present, {.name = "order of gradients"}).wait();
  const std::vector<int> arrival(at, std::find(at, at + count, -1));
  if (arrival.empty()) return;
  make_reducers(plan_buckets(flat.layout(), bucket_bytes, arrival));
}

}  // namespace lockstep
