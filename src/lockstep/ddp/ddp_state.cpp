#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ddp/bucket_size.h"
#include "lockstep/ddp/buffer_sync.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

Ddp::State::State(torch::nn::Module& the_module, const ProcessGroup& the_group,
                  const DdpOptions& the_options)
    : module(the_module),
      group(the_group),
      options(the_options),
      flat(the_module, the_group, {.gradient_buffers = the_options.gradient_buffers}) {
  flat.slots().listen(this);
  prepare();
}

void Ddp::State::prepare() {
  for (int i = 0; i < flat.num_segments(); ++i) {
    auto values = flat.values(i);
    if (values.is_complex()) values = at::view_as_real(values);
    group.broadcast(values, 0, {.name = "parameters"}).wait();
  }
  if (options.buffers != BufferSync::never) broadcast_buffers(module, group, 0);
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

void Ddp::State::expect_idle(const char* verb) const {
  if (!watch.is_running() && !is_started()) return;
  throw UsageError(
      fmt::format("{} was called in the middle of a backward or a reduction; call it "
                  "between steps",
                  verb));
}

void Ddp::State::expect_unspoiled() {
  if (!spoiled) return;
  for (int i = 0; i < num_parameters(); ++i) {
    const auto& parameter = flat.parameters()[static_cast<std::size_t>(i)];
    if (!flat.slots().is_live(i) || squared_norm(parameter.gradient) == 0) continue;
    samples = 0;
    counted = false;
    throw UsageError(
        fmt::format("the gradient of {} is left from a step that ended by an exception or in "
                    "another group: call zero_grad() before the next backward",
                    parameter.name));
  }
  spoiled = false;
}

// Sums are divided by samples, so that an average of earlier must not be among them.
void Ddp::State::expect_joinable(int index) const {
  if (!is_weighted() || of(filling).is_touched(index)) return;
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (!flat.slots().is_live(index) || squared_norm(parameter.gradient) == 0) return;
  throw UsageError(fmt::format(
      "the gradient of {} still holds the average of the last step: call zero_grad() between "
      "steps, and run all but the last backward of a step under no_sync()",
      parameter.name));
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
  if (is_started() && (reduces || filling == reducing)) {
    throw UsageError(filling == reducing
                         ? "backward() was called between start() and wait() of a reduction: that "
                           "needs DdpOptions{.gradient_buffers = 2}"
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
  if (!reduces) return;
  start_rest();
  finish_reduction();
}

void Ddp::State::sit_out() {
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

void Ddp::State::give_up() noexcept {
  forget_counts();
  joined = {};
  due = false;
  spoiled = true;
  marks->clear();
  for (auto& reducer : reducers) reducer.abandon();
  filling = flat.gradient_buffer();
  reducing = filling;
  for (int buffer = 0; buffer < flat.num_gradient_buffers(); ++buffer) {
    if (buffer != filling) flat.slots().drop(buffer);
  }
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
  filled().begin({.samples = weight(batches_in_all),
                  .digest = check.digest(),
                  .sitting_out = batches_in_all == 0});
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
  due = joined.samples > 0;
  // A step is due now: it may change parameters that wait with a gradient in another buffer.
  marks->clear();
  record = reducer.record();
  non_finite.assign(reducer.non_finite().begin(), reducer.non_finite().end());
  if (filling == reducing) forget_counts();
  if (options.trace != nullptr) trace(record, StepClock::now(), *options.trace);
  if (!joined.digests_equal) check.report(flat, group);
  check.look(flat);
  if (joined.first_present < 0) return;
  if (options.buffers == BufferSync::each_step) {
    broadcast_buffers(module, group, joined.first_present);
  }
  if (!planned_by_arrival) replan();
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
