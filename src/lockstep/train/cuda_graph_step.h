// A whole training step as one CUDA graph: forward, backward, reduction, clipping and optimizer are
// captured once and then replayed with one launch. For small models, whose kernels take less time
// than their launches.
//
//   CudaGraphStep step([&](const std::vector<at::Tensor>& batch) {
//     auto loss = loss_of(net->forward(batch[0]), batch[1]);
//     loss.backward();
//     clip_grad_norm(ddp.flat(), 1.0);
//     optimizer.step();
//     optimizer.zero_grad();
//     return loss;
//   });
//   Mean mean;
//   for (const auto& batch : loader.epoch()) {
//     optimizer.set_lr(1e-3);
//     mean.add(step({batch.input(), batch.target()}));
//   }
//
// Results are bit-identical to those of the same steps without a graph. What the device reads is
// that of each replay: batch, lr, step counts, clip factor, loss scale, random numbers. What the
// host does inside the function happens once: do not log, count or branch on values there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

struct CudaGraphStepOptions {
  int warmup = 11;  // steps without a graph before the capture: libraries choose their kernels
  /// The groups over NCCL whose calls the function makes, that of a Ddp for example. Their ranks
  /// make the same steps, each with its own graph. Not needed for a group of one rank that has
  /// requested no backend.
  std::vector<ProcessGroup> groups = {};
};

/// For use by one thread.
class CudaGraphStep {
 public:
  /// Makes one step with `batch`, which is in memory that is the same in every step, and returns
  /// the loss. Calls optimizer.step() without an lr; set_lr() before each step sets it.
  using Function = std::function<at::Tensor(const std::vector<at::Tensor>& batch)>;

  /// Throws UsageError where lockstep was built without CUDA.
  explicit CudaGraphStep(Function function, const CudaGraphStepOptions& options = {});
  CudaGraphStep(const CudaGraphStep&) = delete;
  CudaGraphStep& operator=(const CudaGraphStep&) = delete;
  ~CudaGraphStep();

  /// Makes one step: the first `warmup` calls run the function, the next one captures it, and every
  /// later one replays it. The device's current stream sees the result. `batch` has the same shapes
  /// and dtypes in every call; it is copied, from pinned memory without a wait.
  /// Returns the loss, in memory that the next call overwrites.
  /// Throws UsageError for a batch of another shape, and in the capture for an operation that
  /// cannot be captured, with its name: one that waits for the device, or reads a CPU tensor. That
  /// step has then not been made. With groups, PeerError as their calls.
  at::Tensor operator()(const std::vector<at::Tensor>& batch);

  [[nodiscard]] bool is_captured() const noexcept;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
