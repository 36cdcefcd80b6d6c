// Learning rates as pure functions of the step: the same on every rank and after every restart,
// because nothing is counted and nothing is kept but the description itself.
//
//   const auto lr = 3e-4 * linear_warmup(500).then(cosine(10'000, {.min_lr_ratio = 0.1}));
//   optimizer.step(lr.at(step));
//
// Words: a piece is one of the functions below; its value is a factor, mostly between 0 and 1. The
// length of a schedule is the step from which its value stays as it is. Pieces are multiplied, and
// put one after the other.
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

/// A value, cheap to copy. Offers what a checkpoint saves.
class Schedule {
 public:
  /// Made by the functions below.
  explicit Schedule(std::shared_ptr<const SchedulePiece> piece) noexcept;

  /// The value at `step`, the first being 0. Throws UsageError for a negative step.
  [[nodiscard]] double at(std::int64_t step) const;
  /// The step from which at() stays the same; none for one that never does.
  [[nodiscard]] std::optional<std::int64_t> length() const;

  /// This one, and `next`, counted from 0 again, from length() on.
  /// Throws UsageError when this one has no length.
  [[nodiscard]] Schedule then(const Schedule& next) const;
  friend Schedule operator*(const Schedule& left, const Schedule& right);
  friend Schedule operator*(double factor, const Schedule& schedule);

  /// For a person: "0.0003 × linear warm-up over 500 steps, then cosine over 10000 steps to 0.1".
  [[nodiscard]] std::string describe() const;

  /// A schedule has no tensors.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  /// What schedule_from_json reads.
  [[nodiscard]] std::string state_json() const;
  /// Confirms that a run goes on with the schedule it was saved with. Throws UsageError with both
  /// descriptions when this is another one: what was meant cannot be known here.
  void load_state_json(std::string_view json);

 private:
  std::shared_ptr<const SchedulePiece> piece_;  // shared: pieces do not change
};

/// The schedule that state_json describes. Throws UsageError for anything else.
[[nodiscard]] Schedule schedule_from_json(std::string_view json);

/// `value` at every step.
[[nodiscard]] Schedule constant(double value);

struct WarmupOptions {
  double from = 0;  // the factor that one step before the first would have
};
/// Grows evenly to 1 in `steps` steps: at(0) is one part above `from`, at(steps - 1) is 1.
[[nodiscard]] Schedule linear_warmup(std::int64_t steps, WarmupOptions options = {});

struct DecayOptions {
  double min_lr_ratio = 0;  // the factor at the end, and from then on
};
/// From 1 at step 0 along half a cosine to the min_lr_ratio at `steps`.
[[nodiscard]] Schedule cosine(std::int64_t steps, DecayOptions options = {});
/// From 1 at step 0 along a line to the min_lr_ratio at `steps`.
[[nodiscard]] Schedule linear_decay(std::int64_t steps, DecayOptions options = {});
/// 1, multiplied with `factor` after every `every` steps.
[[nodiscard]] Schedule step_decay(std::int64_t every, double factor);

}  // namespace lockstep
