// Learning-rate schedules as pure functions of the step. A schedule has no mutable state, so it is
// the same on every rank and after every restart.
//
//   const auto lr = 3e-4 * linear_warmup(500).then(cosine(10'000, {.min_lr_ratio = 0.1}));
//   optimizer.step(lr.at(step));
//
// `optimizer` is a flat optimizer of lockstep (lockstep::AdamW, train/adam.h). For an optimizer of
// torch::optim, call options().set_lr(lr.at(step)) of each of its param_groups() before step().
//
// Words: a *piece* is one of the functions below; its value is a factor, usually between 0 and 1.
// Pieces can be multiplied and concatenated with then(). The *length* of a schedule is the step at
// which then() continues with the next one: `steps` for linear_warmup(), cosine() and
// linear_decay(); 0 for constant(), so that nothing of it remains before the next one; none for
// step_decay(). From its length on, the value of a schedule is constant.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class SchedulePiece;

/// A value, cheap to copy. A checkpoint saves it by state_json().
class Schedule {
 public:
  /// Made by the functions below.
  explicit Schedule(std::shared_ptr<const SchedulePiece> piece) noexcept;

  /// The value at `step`; the first step is 0. Throws UsageError for a negative step.
  [[nodiscard]] double at(std::int64_t step) const;
  /// The step from which at() is constant; nullopt if there is none. That of a product is the
  /// larger one of its factors, or nullopt if a factor has none; that of a.then(b) is the sum of
  /// both, or nullopt if b has none.
  [[nodiscard]] std::optional<std::int64_t> length() const;

  /// This schedule before step length(), then `next`, whose steps are counted from there: at step
  /// length() the value is next.at(0), which may differ from the value before it.
  /// Throws UsageError when this schedule has no length.
  [[nodiscard]] Schedule then(const Schedule& next) const;
  /// The product of both values at every step. Throws UsageError if `factor` is not finite.
  friend Schedule operator*(const Schedule& left, const Schedule& right);
  friend Schedule operator*(double factor, const Schedule& schedule);

  /// A description for logs: "0.0003 × (linear warm-up over 500 steps, then cosine over 10000 steps
  /// to 0.1)".
  [[nodiscard]] std::string describe() const;

  /// A schedule has no tensors.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  /// JSON for schedule_from_json().
  [[nodiscard]] std::string state_json() const;
  /// Loads nothing: compares this schedule with the saved one. Throws UsageError with both
  /// descriptions if they differ, and for invalid JSON.
  void load_state_json(std::string_view json);

 private:
  std::shared_ptr<const SchedulePiece> piece_;  // shared: pieces do not change
};

/// The schedule that state_json() has written, also in version 0.1. Throws UsageError for invalid
/// JSON.
[[nodiscard]] Schedule schedule_from_json(std::string_view json);

// The functions below throw UsageError if `steps` or `every` is less than 1, or another number is
// not finite.

/// `value` at every step.
[[nodiscard]] Schedule constant(double value);

struct WarmupOptions {
  double from = 0;  // the factor one step before step 0
};
/// Grows linearly to 1: at(0) is from + (1 - from) / steps; at(steps - 1), at(steps) and all later
/// values are 1.
[[nodiscard]] Schedule linear_warmup(std::int64_t steps, WarmupOptions options = {});

struct DecayOptions {
  double min_lr_ratio = 0;  // the factor at the end and afterwards
};
/// Falls from 1 at step 0 to min_lr_ratio at `steps` along half a cosine.
[[nodiscard]] Schedule cosine(std::int64_t steps, DecayOptions options = {});
/// Falls linearly from 1 at step 0 to min_lr_ratio at `steps`.
[[nodiscard]] Schedule linear_decay(std::int64_t steps, DecayOptions options = {});
/// 1 at step 0, multiplied by `factor` after every `every` steps.
[[nodiscard]] Schedule step_decay(std::int64_t every, double factor);

}  // namespace lockstep
