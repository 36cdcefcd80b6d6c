// Loss scaling for float16, as torch.amp.GradScaler with its constants and arithmetic. The loss is
// multiplied by a scale so that small gradients do not underflow, and gradients are divided by it
// before the optimizer uses them. A step with non-finite gradients is skipped and the scale
// reduced.
//
//   scaler.scale(loss).backward();            // with Ddp: reduces and averages
//   scaler.unscale(flat);                     // or net->parameters(), for torch::optim
//   clip_grad_norm(flat, 1.0);
//   scaler.step(optimizer);                   // skips the step if a gradient is non-finite
//   scaler.update();
//
// Ranks decide equally without communication: every rank starts with the same scale, and averaged
// gradients are bit-identical on all ranks. With shards (DdpOptions::shard) unscale() is
// collective. If gradients were not reduced, or a step must be skipped for another reason, pass a
// flag that was reduced over the ranks (UnscaleOptions). bfloat16 has the range of float32 and
// needs no loss scaling.
//
// With losses on a GPU the scale and the flag are in device memory, and lockstep's optimizers read
// the flag there: no function waits for the device, except where its comment says so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/pending.h"

namespace lockstep {

struct GradScalerOptions {
  double initial_scale = 65536;         // 2^16
  double growth_factor = 2;             // applied after growth_interval finite steps in a row
  double backoff_factor = 0.5;          // applied after a skipped step
  std::int64_t growth_interval = 2000;  // steps
  bool enabled = true;                  // false: scale and gradients are not changed
};

struct UnscaleOptions {
  bool found_elsewhere = false;  // reduced over the ranks: a rank found a non-finite value
};

/// For use by one thread. A checkpoint saves it by state_json().
class GradScaler {
 public:
  /// Throws UsageError for a scale, factor or interval out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Returns `loss` times the scale. Call backward() on the result.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of `parameters` by the scale, in place. Parameters without a gradient
  /// are skipped. Call it once per parameter, between backward() and step().
  /// Returns whether all of them are finite and options.found_elsewhere is false.
  /// Throws UsageError for float16 gradients, and for a parameter that was already unscaled in this
  /// step.
  Pending<bool> unscale(at::TensorList parameters, UnscaleOptions options = {});
  /// The same for flat buffers, in one pass.
  Pending<bool> unscale(FlatParameters& flat, UnscaleOptions options = {});

  /// Calls `optimizer.step(arguments…)` unless a gradient is non-finite. Returns whether it did.
  /// With gradients on a GPU and an optimizer that has step_unless(), as lockstep's have, the
  /// device decides; otherwise the host waits for the flag. Throws UsageError when no gradient was
  /// unscaled since the last update().
  template <typename Optimizer, typename... Arguments>
  Pending<bool> step(Optimizer& optimizer, Arguments&&... arguments) {
    if constexpr (requires { optimizer.step_unless(at::Tensor(), arguments...); }) {
      if (const auto skip = skip_flag(); skip.defined()) {
        optimizer.step_unless(skip, std::forward<Arguments>(arguments)...);
        return is_zero(skip);
      }
    }
    if (!should_step()) return false;
    optimizer.step(std::forward<Arguments>(arguments)...);
    return true;
  }
  /// Whether step() would call the optimizer: false when this step must be skipped. Waits for the
  /// device. Throws as step().
  [[nodiscard]] bool should_step() const;

  /// Updates the scale. Call it once at the end of each step.
  /// Throws UsageError when no gradient was unscaled since the last update().
  void update();

  /// These two wait for the device, as does state_json().
  [[nodiscard]] double current_scale() const;
  /// Number of skipped steps of the run, including those before a checkpoint.
  [[nodiscard]] std::int64_t num_skipped() const;

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  [[nodiscard]] std::string state_json() const;
  /// Restores a saved scale. Throws UsageError for anything that state_json() does not write.
  void load_state_json(std::string_view json);

 private:
  // on_device: the flag is in device memory.
  enum class Found { nothing_yet, finite, not_finite, on_device };

  Pending<bool> note(bool finite, UnscaleOptions options);
  void expect_unscaled(std::string_view verb) const;
  void expect_first_time(const void* what);
  void move_to(at::Device device) const;
  void read_device() const;
  void unscale_gradient(at::Tensor& gradient, bool& finite);
  /// Whether gradients are finite on all ranks, where that may differ.
  [[nodiscard]] bool agree(const FlatParameters& flat, bool finite);
  /// The flag of a step that the device decides; undefined if the host knows it.
  [[nodiscard]] at::Tensor skip_flag() const;
  [[nodiscard]] static Pending<bool> is_zero(const at::Tensor& flag);
  [[nodiscard]] float inverse_scale() const;

  GradScalerOptions options_;
  // What the host knows. If device_ is defined, read_device() brings it up to date.
  mutable float scale_;               // float, as in PyTorch, for the same rounding
  mutable std::int64_t growing_ = 0;  // finite steps since the scale last changed
  mutable std::int64_t num_skipped_ = 0;
  mutable at::Tensor device_;  // the bytes of a DeviceScaler, once a loss or gradient was on a GPU
  Found found_ = Found::nothing_yet;                  // since the last update
  std::unordered_set<const void*> already_unscaled_;  // since the last update
};

}  // namespace lockstep
