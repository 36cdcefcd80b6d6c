// Loss scaling for float16: the loss is multiplied so that small gradients do not vanish, gradients
// are divided again before they are used, and a step whose gradients are not finite is left out and
// followed by a smaller scale. Constants, order and arithmetic are those of torch.amp.GradScaler.
//
//   scaler.scale(loss).backward();                     // with Ddp: reduces and averages
//   scaler.unscale(flat);                              // or net->parameters(), for torch::optim
//   (clip gradients here)
//   scaler.step(optimizer);                            // leaves the step out if it must
//   scaler.update();
//
// Ranks agree without a message: every rank has the same scale from the start, and reduced
// gradients have the same bits everywhere, so all ranks find the same. Where gradients were not
// reduced, or something else is to be left out as well, give the flag that was joined over the
// ranks. bfloat16 has the range of float32 and needs none of this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

struct GradScalerOptions {
  double initial_scale = 65536;         // 2^16
  double growth_factor = 2;             // after growth_interval good steps in a row
  double backoff_factor = 0.5;          // after a step that was left out
  std::int64_t growth_interval = 2000;  // steps
  bool enabled = true;                  // false: every verb lets things as they are
};

struct UnscaleOptions {
  bool found_elsewhere = false;  // joined over the ranks: some value was not finite there
};

/// Used by one thread. Offers what a checkpoint saves.
class GradScaler {
 public:
  /// Throws UsageError for a scale, factor or interval out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale. Call backward() on the result.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of `parameters` by the scale, in place, and notes whether all were
  /// finite; those without a gradient are passed over. Call it once between backward and step for
  /// each parameter. Returns whether they were. Throws UsageError for float16 gradients, and for a
  /// parameter that was unscaled in this step before.
  bool unscale(at::TensorList parameters, UnscaleOptions options = {});
  /// The same over flat memory, in one pass.
  bool unscale(FlatParameters& flat, UnscaleOptions options = {});

  /// Calls `optimizer.step(arguments…)` unless a gradient was not finite. Returns whether it did.
  /// Throws UsageError when nothing was unscaled since the last update.
  template <typename Optimizer, typename... Arguments>
  bool step(Optimizer& optimizer, Arguments&&... arguments) {
    if (!should_step()) return false;
    optimizer.step(std::forward<Arguments>(arguments)...);
    return true;
  }
  /// What step() asks: false when this step must be left out.
  [[nodiscard]] bool should_step() const;

  /// Adapts the scale. Call it once at the end of each step.
  /// Throws UsageError when nothing was unscaled since the last update.
  void update();

  [[nodiscard]] double current_scale() const noexcept { return options_.enabled ? scale_ : 1; }
  /// How many steps were left out since the beginning, also before a checkpoint.
  [[nodiscard]] std::int64_t num_skipped() const noexcept { return num_skipped_; }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  [[nodiscard]] std::string state_json() const;
  /// Goes on with a saved scale. Throws UsageError for anything that state_json does not write.
  void load_state_json(std::string_view json);

 private:
  enum class Found { nothing_yet, finite, not_finite };

  void note(bool finite, UnscaleOptions options) noexcept;
  void expect_unscaled(std::string_view verb) const;
  void expect_first_time(const void* what);
  [[nodiscard]] float inverse_scale() const noexcept;

  GradScalerOptions options_;
  float scale_;               // float, as Python's: both then round alike
  std::int64_t growing_ = 0;  // good steps since the scale last changed
  std::int64_t num_skipped_ = 0;
  Found found_ = Found::nothing_yet;                  // since the last update
  std::unordered_set<const void*> already_unscaled_;  // since the last update
};

}  // namespace lockstep
