// PowerSGD (Vogels, Karimireddy, Jaggi 2019, "PowerSGD: practical low-rank gradient compression"):
// the gradient of a matrix with n rows and m columns is sent as two thin matrices, P with n × r and
// Q with m × r values. It is the method of Python's powerSGD_hook.
//
//   lockstep::PowerSgd power({.rank = 4, .start_step = 100});
//   ddp.set_hook(power.hook());
//   run.track("compression", power);   // if the loop saves checkpoints
//
// One step of power iteration per training step: P = M Q, averaged over the ranks and made
// orthonormal; Q = Mᵀ P, averaged; the gradient is P Qᵀ. With warm start Q is that of the last
// step, so that the approximation improves from step to step. What is lost is kept and added to the
// gradient of the next step (error feedback). The state changes only if the step succeeds.
//
// A matrix is compressed only if (n + m) · r · min_ratio < n · m; the first dimension of a
// parameter gives the rows, the others the columns. Everything else travels uncompressed in the
// call of P. Matrices of equal shape are multiplied as a batch. P Qᵀ is computed in a fixed order,
// so the result is bit-identical on all ranks; on GPUs, if they are of one model. With one rank
// nothing is compressed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

struct PowerSgdOptions {
  int rank = 1;  // r, the rank of the approximation
  std::int64_t start_step =
      1000;              // steps before it are not compressed: gradients change fast there
  double min_ratio = 2;  // a matrix is compressed if its traffic shrinks by more than this
  bool error_feedback = true;
  bool warm_start = true;
  std::uint64_t seed = 0;  // of the first Q; equal on all ranks
};

/// One object per Ddp. Copies share the state.
class PowerSgd {
 public:
  /// Throws UsageError for invalid options.
  explicit PowerSgd(const PowerSgdOptions& options = {});

  /// For Ddp::set_hook(). It shares the state and may outlive this object.
  [[nodiscard]] GradientHook hook() const;
  /// The number of steps that have succeeded with this hook.
  [[nodiscard]] std::int64_t step() const noexcept;

  // The state, as a tracked object of a checkpoint (checkpoint/tracked.h): Qᵀ by parameter, equal
  // on all ranks, and each rank's error by parameter. Between steps only.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const;
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> rank_tensors() const;
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError if `json` is not the state of this class with the same rank.
  void load_state_json(std::string_view json);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
