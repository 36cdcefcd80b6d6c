#include "lockstep/train/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/train/schedule_pieces_internal.h"

namespace lockstep {
namespace {

void expect_steps(std::string_view piece, std::int64_t steps) {
  if (steps > 0) return;
  throw UsageError(fmt::format("{} over {} steps: expected at least 1", piece, steps));
}

void expect_finite(std::string_view piece, double value) {
  if (std::isfinite(value)) return;
  throw UsageError(fmt::format("{} with the value {}: expected a finite number", piece, value));
}

Schedule make(Piece piece) {
  return Schedule(std::make_shared<const SchedulePiece>(std::move(piece)));
}

}  // namespace

Schedule::Schedule(std::shared_ptr<const SchedulePiece> piece) noexcept
    : piece_(std::move(piece)) {}

double Schedule::at(std::int64_t step) const {
  if (step < 0) throw UsageError(fmt::format("a schedule at step {}: expected 0 or more", step));
  return piece_->at(step);
}

std::optional<std::int64_t> Schedule::length() const { return piece_->length(); }

Schedule Schedule::then(const Schedule& next) const {
  const auto ends = length();
  if (!ends) {
    throw UsageError(fmt::format(
        "then() after {}, which has no end: multiply the two schedules instead", describe()));
  }
  return make(Sequence{piece_, next.piece_, *ends});
}

Schedule operator*(const Schedule& left, const Schedule& right) {
  return make(Product{left.piece_, right.piece_});
}

Schedule operator*(double factor, const Schedule& schedule) { return constant(factor) * schedule; }

std::string Schedule::describe() const { return piece_->describe(); }

std::string Schedule::state_json() const { return piece_->to_json().dump(); }

void Schedule::load_state_json(std::string_view json) {
  const auto saved = schedule_from_json(json);
  if (saved.state_json() == state_json()) return;
  throw UsageError(fmt::format(
      "the checkpoint was saved with the schedule {}, and this program has {}: use the saved one "
      "(schedule_from_json), or do not track the schedule to continue with another one",
      saved.describe(), describe()));
}

Schedule schedule_from_json(std::string_view json) {
  try {
    return read_schedule(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not a description of a schedule: {}", error.what()));
  }
}

Schedule constant(double value) {
  expect_finite("a constant schedule", value);
  return make(Constant{value});
}

Schedule linear_warmup(std::int64_t steps, WarmupOptions options) {
  expect_steps("a linear warm-up", steps);
  expect_finite("a linear warm-up", options.from);
  return make(LinearWarmup{steps, options.from});
}

Schedule cosine(std::int64_t steps, DecayOptions options) {
  expect_steps("a cosine", steps);
  expect_finite("a cosine", options.min_lr_ratio);
  return make(Cosine{steps, options.min_lr_ratio});
}

Schedule linear_decay(std::int64_t steps, DecayOptions options) {
  expect_steps("a linear decay", steps);
  expect_finite("a linear decay", options.min_lr_ratio);
  return make(LinearDecay{steps, options.min_lr_ratio});
}

Schedule step_decay(std::int64_t every, double factor) {
  expect_steps("a step decay", every);
  expect_finite("a step decay", factor);
  return make(StepDecay{every, factor});
}

}  // namespace lockstep
