// The base of optimizers over flat buffers: parameter groups, named state, and a step count per
// parameter, because a parameter may get no gradient in some steps.
//
// Every rank makes the same step with the same gradients, so replicas stay equal without
// communication. A step is one pass over parameters, gradients and state, on LibTorch's intra-op
// threads.
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

/// The values of one group in one step.
struct GroupStep {
  double lr = 0;
  double weight_decay = 0;
  std::int64_t step = 1;  // number of steps of these parameters, including this one
};

/// Elements [begin, end) of a segment with the same group and step count.
struct StepRange {
  int segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Refers to `flat`, which must outlive it. A checkpoint saves it by named_tensors() and
/// state_json().
class FlatOptimizer {
 public:
  FlatOptimizer(const FlatOptimizer&) = delete;
  FlatOptimizer& operator=(const FlatOptimizer&) = delete;
  virtual ~FlatOptimizer();

  /// Makes one step with the lr of the options, or with `lr`, for example a schedule's value.
  /// Parameters without a gradient do not change and keep their step count.
  /// Throws UsageError for an lr that is negative or not finite, and with the names of parameters
  /// that left registered memory.
  void step() { step(lr_); }
  void step(double lr);

  /// Sets all gradients to undefined (set_to_none); the next backward() writes them instead of
  /// adding.
  void zero_grad();

  /// The state of each parameter: "layers.0.weight.exp_avg", with the parameter's shape, and
  /// "layers.0.weight.step". The tensors are the state itself, not copies.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const;
  /// The kind of the optimizer. Options are not saved; the program sets them.
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError when `json` was saved by another kind of optimizer, or is invalid.
  void load_state_json(std::string_view json);

 protected:
  struct Settings {
    std::string kind;
    double lr = 0;
    double weight_decay = 0;
    std::vector<ParameterGroup> groups;
    std::vector<std::string> state_names;  // one state tensor per segment for each name
  };

  /// Throws UsageError for settings out of range, and for float16 or complex parameters.
  FlatOptimizer(FlatParameters& flat, Settings settings);

  /// Makes the step for one range of elements.
  virtual void update(const StepRange& range, const GroupStep& group) = 0;

  /// State number `which` of a segment; float32 for 16-bit parameters.
  [[nodiscard]] const at::Tensor& state(std::size_t which, int segment) const;
  /// The float32 master copy of a segment of 16-bit parameters; undefined for other dtypes.
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
  std::vector<std::size_t> group_of_;  // by parameter; groups_.size() if no group matches
  std::vector<std::string> state_names_;
  std::vector<std::vector<at::Tensor>> state_;  // by name, by segment
  std::vector<at::Tensor> masters_;             // by segment
  at::Tensor steps_;                            // by parameter, int64
};

/// Throws UsageError unless `holds`: "AdamW with eps -1: expected a value above 0".
void expect_option(bool holds, std::string_view kind, std::string_view option, double value,
                   std::string_view range);

}  // namespace lockstep
