#include "lockstep/ddp/step_phase.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {

void StepTally::count(std::int64_t of_batch) noexcept {
  samples += of_batch;
  is_counted = true;
}

void StepTally::add_batch() noexcept {
  ++batches;
  add_empty();
}

void StepTally::add_empty() noexcept {
  ++micro_batches;
  is_counted = false;
}

void StepTally::add_assigned() noexcept { batches = std::max(batches, 1); }

std::int64_t weight_of(const StepTally& tally, const StepRules& rules) noexcept {
  if (rules.by_count) return tally.samples;
  return rules.accumulate > 1 ? tally.batches : std::min(tally.batches, 1);
}

Phase next_micro_batch(const StepTally& tally, const StepRules& rules,
                       int no_sync_scopes) noexcept {
  const bool is_last = tally.micro_batches + 1 >= rules.accumulate;
  return is_last && no_sync_scopes == 0 ? Phase::reducing : Phase::accumulating;
}

Phase enter_backward(Phase now, Phase micro_batch, const GradientBuffers& buffers) {
  LOCKSTEP_ASSERT(!runs_backward(now), "one backward at a time");
  if (now == Phase::idle) return micro_batch;
  if (!buffers.are_apart()) {
    throw UsageError(
        "backward() was called between start() and wait() of a reduction: call wait() first, or "
        "set DdpOptions{.gradient_buffers = 2} to run a backward meanwhile");
  }
  if (micro_batch == Phase::reducing) {
    throw UsageError(
        "backward() was called between start() and wait() of a reduction and would begin a second "
        "one: run it under no_sync()");
  }
  return Phase::overlapping;
}

Phase leave_backward(Phase now) noexcept {
  return now == Phase::overlapping ? Phase::started : Phase::idle;
}

bool runs_backward(Phase now) noexcept {
  return now == Phase::accumulating || now == Phase::reducing || now == Phase::overlapping;
}

bool has_to_wait(Phase now) {
  if (now == Phase::reducing || now == Phase::overlapping) {
    throw UsageError(
        "wait() of a reduction was called during a backward: call it after the backward");
  }
  return now == Phase::started;
}

void expect_idle(Phase now, const char* verb) {
  if (now == Phase::idle) return;
  throw UsageError(
      fmt::format("{} was called during a backward or a reduction: call it between steps", verb));
}

void expect_countable(Phase now, const GradientBuffers& buffers) {
  if (now == Phase::started && buffers.are_apart()) return;
  expect_idle(now, "count()");
}

}  // namespace lockstep
