// Measures where the time of a run goes: per step, reduced over the ranks per interval, and in
// total.
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/collectives/process_group.h"
#include "lockstep/train/metrics.h"

namespace lockstep::cli {

using Seconds = std::chrono::duration<double>;

struct StepCost {
  Seconds whole{0};
  Seconds data_wait{0};  // waiting for the loader
  Seconds exposed{0};    // exposed communication: waiting for gradients after backward
};

/// The figures of all ranks since the previous interval.
struct Interval {
  std::int64_t steps = 0;
  Mean loss = {};
  Mean data_wait = {};           // fraction of the time, mean over ranks
  Maximum worst_data_wait = {};  // the largest of any rank
  Mean exposed = {};
  Maximum seconds = {};  // of the slowest rank
};

/// The time of this rank since the program started, by what it did.
struct TimeSplit {
  Seconds steps{0};
  Seconds data_wait{0};
  Seconds exposed{0};
  Seconds evaluation{0};
  Seconds saving{0};

  /// Forward, backward and the optimizer.
  [[nodiscard]] Seconds compute() const { return steps - data_wait - exposed; }
  [[nodiscard]] Seconds whole() const { return steps + evaluation + saving; }
};

class Meter {
 public:
  void add(const StepCost& cost, const Mean& loss);
  void add_evaluation(Seconds time) { split_.evaluation += time; }
  void add_saving(Seconds time) { split_.saving += time; }

  /// The mean loss of this rank in this interval; NaN without one.
  [[nodiscard]] double own_loss() const;

  /// Ends an interval and returns its figures. Collective: every rank calls this.
  [[nodiscard]] Interval read_and_reset(const ProcessGroup& group);

  [[nodiscard]] const TimeSplit& split() const noexcept { return split_; }
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  /// The mean time per step of this interval, or of the previous one while this has no step.
  [[nodiscard]] Seconds mean_step() const;

 private:
  StepCost now_;
  Mean loss_;
  std::int64_t interval_steps_ = 0;
  Seconds last_mean_{0};
  TimeSplit split_;
  std::int64_t steps_ = 0;
};

/// Floating-point operations per second of a product of two square matrices, measured now on this
/// thread or on a GPU in `dtype`: the peak that a model's own figure is compared with.
[[nodiscard]] double matrix_product_speed(at::Device device, at::ScalarType dtype);

}  // namespace lockstep::cli
