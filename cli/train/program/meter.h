// Where a run's time goes: what each step took, joined over the ranks interval by interval, and in
// all.
#pragma once

#include <chrono>
#include <cstdint>

#include "lockstep/collectives/process_group.h"
#include "lockstep/train/metrics.h"

namespace lockstep::cli {

using Seconds = std::chrono::duration<double>;

struct StepCost {
  Seconds whole{0};
  Seconds data_wait{0};  // the loader had no batch ready
  Seconds exposed{0};    // waited for other ranks after backward had nothing left to do
};

/// What all ranks together did since the last time.
struct Interval {
  std::int64_t steps = 0;
  Mean loss = {};
  Mean data_wait = {};           // shares of the time, over ranks
  Maximum worst_data_wait = {};  // of any rank
  Mean exposed = {};
  Maximum seconds = {};  // of the slowest rank
};

/// Of this rank, since the program started.
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

  /// Ends an interval. Collective.
  [[nodiscard]] Interval take(const ProcessGroup& group);

  [[nodiscard]] const TimeSplit& split() const noexcept { return split_; }
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  /// A step's mean time in this interval, or in the one before where this has none yet.
  [[nodiscard]] Seconds mean_step() const;

 private:
  StepCost now_;
  Mean loss_;
  std::int64_t interval_steps_ = 0;
  Seconds last_mean_{0};
  TimeSplit split_;
  std::int64_t steps_ = 0;
};

/// Products and sums a second that a product of two square matrices reaches on this thread, now:
/// what a model's own rate is held against.
[[nodiscard]] double matrix_product_rate();

}  // namespace lockstep::cli
