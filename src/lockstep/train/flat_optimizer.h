// What optimizers over flat memory have in common: which stretches a step goes over, groups, state
// with names, steps of their own for parameters that get no gradient at times.
//
// Every rank makes the same step on the same gradients, so replicas stay equal without a message.
// A step makes one pass over parameters, gradients and state, on as many threads as LibTorch's own
// operators use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/train/parameter_groups.h"

namespace lockstep {

/// What one group has at one step.
struct GroupStep {
  double lr = 0;
  double weight_decay = 0;
  std::int64_t step = 1;  // how many steps these parameters have made, this one included
};

/// Elements [begin, end) of a segment that make their step together.
struct StepRange {
  int segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Not copied: it refers to `flat`, which outlives it. Offers what a checkpoint saves.
class FlatOptimizer {
 public:
  FlatOptimizer(const FlatOptimizer&) = delete;
  FlatOptimizer& operator=(const FlatOptimizer&) = delete;
  virtual ~FlatOptimizer();

  /// Makes one step with the lr of the options, or with `lr` in its place: a schedule's value.
  /// Parameters without a gradient are passed over and keep their own count of steps.
  /// Throws UsageError naming parameters that left registered memory, and for a lr that is negative
  /// or no number.
  void step() { step(lr_); }
  void step(double lr);

  /// Lets every gradient be undefined; the next backward writes instead of adding.
  void zero_grad();

  /// The state of each parameter under its own name and what it is: "layers.0.weight.exp_avg",
  /// shaped as the parameter, and "layers.0.weight.step". They are the state itself, not copies.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const;
  /// Which kind of optimizer this is. Options are the program's affair.
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError when another kind of optimizer was saved.
  void load_state_json(std::string_view json);

 protected:
  struct Settings {
    std::string kind;
    double lr = 0;
    double weight_decay = 0;
    std::vector<ParameterGroup> groups;
    std::vector<std::string>
        state_names;  // one stretch of state for each, as long as the parameters
  };

  /// Throws UsageError for settings out of range, and for parameters of float16 or complex numbers.
  FlatOptimizer(FlatParameters& flat, Settings settings);

  /// Makes the step for one range.
  virtual void update(const StepRange& range, const GroupStep& group) = 0;

  /// State number `which` of a segment; float32 where parameters have 16 bits.
  [[nodiscard]] const at::Tensor& state(std::size_t which, int segment) const;
  /// float32 copies of a segment of 16-bit parameters; undefined for others.
  [[nodiscard]] const at::Tensor& masters(int segment) const;
  [[nodiscard]] FlatParameters& flat() const noexcept { return flat_; }

 private:
  void make_state();
  void step_range(const FlatRange& range, double lr);
  [[nodiscard]] GroupStep group_step(std::size_t group, std::int64_t step, double lr) const;

  FlatParameters& flat_;
  std::string kind_;
  double lr_;
  double weight_decay_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::size_t> group_of_;  // by parameter; groups_.size() for none
  std::vector<std::string> state_names_;
  std::vector<std::vector<at::Tensor>> state_;  // by name, by segment
  std::vector<at::Tensor> masters_;             // by segment
  at::Tensor steps_;                            // by parameter, int64
};

/// Throws UsageError unless `holds`: "AdamW with beta1 1.5: give one of [0, 1)".
void expect_option(bool holds, std::string_view kind, std::string_view option, double value,
                   std::string_view range);

}  // namespace lockstep
