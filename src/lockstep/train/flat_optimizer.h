// The base of optimizers over flat buffers: parameter groups, named state, and a step count per
// parameter, because a parameter may get no gradient in some steps.
//
// If all ranks call step() with equal gradients, lr and options, replicas stay equal without
// communication. With shards (flat/shards.h) a rank has the state of its own shards only, steps
// these, and receives the other ranks' values: all functions are collective then. A step is one
// pass over parameters, gradients and state: on LibTorch's intra-op threads, or on a GPU with one
// launch per segment. There the step counts are in device memory too, so that a step can be skipped
// without the host knowing it.
//
// Words: a *segment* is the part of the flat buffers that holds the parameters of one dtype on one
// device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/sharded_tensor.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/kernels/caching.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/train/parameter_groups.h"

namespace lockstep {

class DeviceTable;

/// The values of one group in one step.
struct GroupStep {
  double lr = 0;
  double weight_decay = 0;
  std::int64_t step = 1;  // number of steps of these parameters, including this one

  friend bool operator==(const GroupStep&, const GroupStep&) = default;
};

/// Elements of a segment, which make the same step.
struct RangeStep {
  OwnedRun elements = {};
  GroupStep group = {};
};

/// The step of a segment on a GPU.
struct DeviceStep {
  const DeviceTable* table = nullptr;
  at::Tensor counts = {};  // steps of each parameter, int64
  DeviceStepInputs inputs = {};
};

/// The memory of one segment: one dtype on one device (flat/layout.h). Masters and state are
/// packed: of the elements that this rank updates (OwnedRun). So are gradients with
/// Shard::gradients.
struct SegmentMemory {
  at::Tensor values;
  bool values_are_packed = false;
  at::Tensor old_values;  // before the step, if `values` does not hold them; or undefined
  Caching caching = Caching::through;  // how `values` are written then
  at::Tensor gradients;
  bool gradients_are_packed = false;
  at::Tensor masters;             // float32 copies of bfloat16 values; undefined for other dtypes
  std::vector<at::Tensor> state;  // by name; float32 for bfloat16 values
  DeviceStep device = {};         // for a segment on a GPU
};

/// Refers to `flat`, which must outlive it. A checkpoint saves it by named_tensors() and
/// state_json(): state and kind, not the options. (The options of a torch::optim optimizer are
/// saved, and on resume they overwrite the program's, also the lr.)
class FlatOptimizer {
 public:
  FlatOptimizer(const FlatOptimizer&) = delete;
  FlatOptimizer& operator=(const FlatOptimizer&) = delete;
  virtual ~FlatOptimizer();

  /// Makes one step with the lr of the options, or with `lr`, for example a schedule's value. In
  /// both cases a group's lr_factor multiplies it.
  /// Parameters without a gradient do not change and keep their step count.
  /// Throws UsageError for an lr that is negative or not finite, and with the names of parameters
  /// whose storage was replaced (to(), set_data, torch::load).
  /// In a captured CUDA graph only step() is valid: the lr is that of set_lr() before each replay.
  void step();
  void step(double lr);
  /// The same, but nothing changes if `skip`, one int32, is not 0 when the device makes the step:
  /// the host does not wait for it. GradScaler uses this. Parameters on the CPU make the host wait.
  void step_unless(const at::Tensor& skip);
  void step_unless(const at::Tensor& skip, double lr);

  /// The lr of step(), at first that of the options. Throws as step(lr).
  void set_lr(double lr);

  /// Sets all gradients to undefined (set_to_none); the next backward() writes them instead of
  /// adding.
  void zero_grad();

  /// The state of each parameter: "layers.0.weight.exp_avg", with the parameter's shape, and
  /// "layers.0.weight.step". The tensors are the state itself, not copies. With shards, only the
  /// steps, and copies of the state of parameters whose memory is not row-major (channels-last),
  /// which load_tensors() copies back.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors();
  /// With shards: the rest of it.
  [[nodiscard]] ShardedTensors sharded_tensors();
  void load_tensors(const std::vector<std::pair<std::string, at::Tensor>>& loaded);
  /// The kind of the optimizer. Options are not saved: a resumed run uses those of the program.
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

  /// Makes the steps of `ranges` of one segment on the CPU, or memory.device of one on a GPU.
  virtual void update(const SegmentMemory& memory, std::span<const RangeStep> ranges) = 0;

 private:
  void make_state();
  void make_step(const DeviceStepInputs& inputs);
  void follow_rebind();
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> packed_of(int segment) const;
  /// With shards on the CPU: the state and masters of all segments, as packed_of() lists them.
  [[nodiscard]] ShardCheck::Memory own_state() const;
  void expect_own_state();
  [[nodiscard]] at::Tensor make_masters(int segment) const;
  void add_steps(const FlatRange& range, double lr, std::vector<RangeStep>& steps);
  [[nodiscard]] SegmentMemory memory_of(int segment, const DeviceStepInputs& inputs) const;
  [[nodiscard]] std::unique_ptr<DeviceTable> make_table(int segment) const;
  /// Whether the host must know `skip`: not all parameters are on its device.
  [[nodiscard]] bool must_read(const at::Tensor& skip) const;
  [[nodiscard]] DeviceStepInputs inputs(double lr, const at::Tensor& skip) const;
  [[nodiscard]] DeviceStepInputs inputs_of_options(const at::Tensor& skip);
  [[nodiscard]] GroupStep group_step(std::size_t group, std::int64_t step, double lr) const;

  FlatParameters& flat_;
  std::shared_ptr<const Shards> shards_;  // of the state
  std::string kind_;
  double lr_;
  double weight_decay_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::size_t> group_of_;  // by parameter; groups_.size() if no group matches
  std::vector<std::string> state_names_;
  std::vector<std::vector<at::Tensor>> state_;        // by name, by segment: packed
  std::vector<at::Tensor> masters_;                   // by segment: packed
  std::vector<std::unique_ptr<DeviceTable>> tables_;  // by segment; null on the CPU
  std::vector<at::Tensor> steps_;                     // by segment, by order of slots: int64
  std::vector<std::uint32_t> index_in_segment_;       // by parameter: its index in its segment
  at::Tensor lr_cell_;                                // lr_ in device memory; if one is on a GPU
  ShardCheck state_check_;                            // of own_state()
};

/// Throws UsageError unless `holds`: "AdamW with eps -1: expected a value above 0".
void expect_option(bool holds, std::string_view kind, std::string_view option, double value,
                   std::string_view range);

}  // namespace lockstep
