// What a Ddp checks and says beside its reductions: calls at the wrong moment, backwards that fail,
// gradients that are not finite, and what is left at the end.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

void Ddp::State::expect_unspoiled() {
  if (gradients != StepGradients::spoiled) return;
  for (int i = 0; i < num_parameters(); ++i) {
    const auto& parameter = flat.parameters()[static_cast<std::size_t>(i)];
    if (!flat.slots().is_bound(i) || squared_norm(parameter.gradient) == 0) continue;
    tally = {};
    throw UsageError(
        fmt::format("the gradient of {} is left from a step that ended by an exception or in "
                    "another group: call zero_grad() before the next backward",
                    parameter.name));
  }
  gradients = StepGradients::open;
}

// Sums are divided by samples, so that an average of earlier must not be among them.
void Ddp::State::expect_no_average(int index) const {
  if (!rules().by_count && rules().accumulate == 1) return;
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (squared_norm(parameter.gradient) == 0) return;
  throw UsageError(fmt::format(
      "the gradient of {} still holds the average of the last step: call zero_grad() between "
      "steps, and run all but the last backward of a step under no_sync()",
      parameter.name));
}

void Ddp::State::give_up() noexcept {
  complete_calls();
  phase = Phase::idle;
  gradients = StepGradients::spoiled;
  buffers = {flat.gradient_buffer(), flat.gradient_buffer()};
  tally = {};
  group_flags = {};
  non_finite_result.reset();
  marks->clear();
  for (auto& reducer : reducers) reducer.forget();
  for (int buffer = 0; buffer < flat.num_gradient_buffers(); ++buffer) {
    if (buffer != buffers.filling) flat.slots().drop(buffer);
  }
}

// Without this, a rank that fails alone would leave the others in calls that its next backward then
// takes part in: one step behind.
void Ddp::State::complete_calls() noexcept {
  if (!reduced().is_begun()) return;
  const auto quietly = [](auto action) {
    try {
      action();
    } catch (const std::exception&) {
      // What made this rank give up is thrown already. A group that has failed says so again.
    }
  };
  const int in_use = flat.gradient_buffer();
  quietly([this] {
    flat.use_gradient_buffer(buffers.reducing);
    reduced().start_rest_as_failed();
    finish_reduction();
  });
  quietly([this, in_use] { flat.use_gradient_buffer(in_use); });
}

void Ddp::State::report_failed_ranks(bool here, std::int64_t number) const {
  auto own = at::full({1}, here ? 1 : 0, at::kByte);
  auto all = at::empty({group.size()}, at::kByte);
  group.all_gather(all, own, {.name = "failed backwards"}).wait();
  const auto* failed = all.const_data_ptr<std::uint8_t>();
  const auto* first = std::find(failed, failed + group.size(), 1);
  const int rank = group.global_rank(static_cast<int>(first - failed));
  throw PeerError(
      rank,
      fmt::format("the backward of rank {} failed ({} of {} ranks, in backward {}); the output "
                  "of rank {} says why. Gradients of this step are not averaged on any rank: "
                  "call zero_grad() on every rank and continue, or end the job",
                  rank, std::count(failed, failed + group.size(), 1), group.size(), number, rank));
}

bool Ddp::State::is_due() const {
  if (gradients != StepGradients::averaged) return false;
  const auto& slots = flat.slots();
  return slots.any(GradientState::stale, buffers.reducing) ||
         slots.any(GradientState::fresh, buffers.reducing);
}

// Sums of finite gradients may overflow, but for float16, which is summed in float32. The results
// have the same bits on all ranks, so every rank finds the same. Only a caller that asks pays for
// it.
bool Ddp::State::is_non_finite() {
  if (has(group_flags, StepFlags::kNonFinite)) return true;
  if (group.size() == 1 || gradients != StepGradients::averaged) return false;
  if (non_finite_result) return *non_finite_result;
  non_finite_result = false;
  for (const auto& range : flat.bound_gradients()) {
    const auto& segment = flat.gradients(range.segment);
    if (segment.scalar_type() == at::kHalf) continue;
    if (has_non_finite(segment.slice(0, range.begin, range.end))) non_finite_result = true;
  }
  return *non_finite_result;
}

void Ddp::State::report_non_finite() {
  if (!has(group_flags, StepFlags::kNonFinite) || non_finite_reported) return;
  non_finite_reported = true;  // on all ranks: what follows may follow from it
  if (non_finite.empty()) return;
  const auto& first = flat.parameters()[static_cast<std::size_t>(non_finite.front())];
  const Log log({.rank = group.global_rank(group.rank())});
  log.warning(fmt::format(
      "the gradient of {}{} is not finite on this rank in backward {}: the average is not finite "
      "on "
      "any rank, and ddp.non_finite() is true. Look at this rank's batch and loss, or use a "
      "GradScaler, which skips such steps. This is reported once",
      first.name,
      non_finite.size() > 1 ? fmt::format(" (and of {} more parameters)", non_finite.size() - 1)
                            : "",
      reduced().number()));
}

void Ddp::State::report_at_end() {
  const Log log({.rank = group.global_rank(group.rank())});
  // Only a later gradient tells a temporary from a run that had nothing left to train.
  if (!attempted && group.size() > 1 && group.rank() == 0) {
    flat.slots().when_gone([log](const std::string& name) {
      log.warning(
          fmt::format("a gradient of {} is not averaged: its Ddp has ended and has reduced no "
                      "gradients. Is it a "
                      "temporary? Gradients are averaged only while the Ddp lives: give it a name, "
                      "in the scope "
                      "of the training loop",
                      name));
    });
  }
  for (int i = 0; i < num_parameters(); ++i) {
    if (!marks->is_changed(i)) continue;
    log.warning(
        "a step was made with gradients of a backward under no_sync() that were never averaged: "
        "the "
        "last backward of a step runs outside no_sync(), or start() and wait() follow it");
    break;
  }
  if (const auto names = flat.moved_parameters(); !names.empty()) {
    log.warning(fmt::format(
        "parameters left registered memory and were not averaged since: {}; move or load them before "
        "the Ddp is made, or call adopt() on all ranks",
        fmt::join(names, ", ")));
  }
  if (const auto names = flat.added_parameters(); !names.empty()) {
    log.warning(
        fmt::format("parameters were added to the module since the Ddp was made, and their "
                    "gradients were never "
                    "averaged: {}; register every parameter first, then make the Ddp",
                    fmt::join(names, ", ")));
  }
}

}  // namespace lockstep
