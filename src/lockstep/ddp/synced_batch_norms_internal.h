// SyncBatchNorm: the BatchNorm layers of a model, normalized with the statistics of the batches of
// all ranks (DdpOptions::sync_batch_norm). The model does not change: batch_norm_calls_internal.h
// directs the calls of its layers here.
//
// Each layer makes one call in forward, an all_gather of the moments, and one in backward, an
// all_reduce of two sums per channel, if the gradient of its input is needed. Calls are made in a
// group of their own, because their order relative to the gradients is not fixed; they are named
// after the layer. Evaluation makes no call.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/collectives/forward_record.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/batch_moments.h"
#include "lockstep/flat/observed_module.h"

namespace torch::nn {
class Module;
struct BatchNormOptions;
}  // namespace torch::nn

namespace lockstep {

/// A BatchNorm1d, BatchNorm2d or BatchNorm3d, whose common members have no common base class.
struct BatchNormLayer {
  std::string name;
  std::shared_ptr<const torch::nn::Module> keep;  // null for the model itself
  const torch::nn::Module* module = nullptr;
  const torch::nn::BatchNormOptions* options = nullptr;
  // Pointers to members of the module, which may be assigned.
  const at::Tensor* weight = nullptr;
  const at::Tensor* running_mean = nullptr;
  const at::Tensor* running_var = nullptr;
  const at::Tensor* num_batches_tracked = nullptr;
  std::string forward_name;  // of its calls, at most as long as the group keeps
  std::string backward_name;

  [[nodiscard]] bool owns(const at::Tensor& its_running_mean,
                          const at::Tensor& its_weight) const noexcept;
  [[nodiscard]] bool is_training() const;
};

/// The arguments of LibTorch's batch_norm.
struct BatchNormCall {
  const at::Tensor& input;
  const at::Tensor& weight;  // the rest may be undefined
  const at::Tensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_var;
  double momentum = 0;
  double eps = 0;
};

class SyncedBatchNorms;

/// The result of a layer's call in forward, kept for a second forward (recompute).
struct SyncedStatistics final : ForwardValue {
  std::shared_ptr<SyncedBatchNorms> layers;
  const BatchNormLayer* layer = nullptr;
  BatchStatistics statistics;
  std::int64_t count = 0;  // values per channel on all ranks
};

class SyncedBatchNorms : public std::enable_shared_from_this<SyncedBatchNorms> {
 public:
  /// The BatchNorm layers of `module`. Collective: makes a group of the ranks of `group`.
  /// Throws UsageError if the model has none, and for layers without weight and running statistics,
  /// by which calls are recognized; it names them.
  SyncedBatchNorms(torch::nn::Module& module, const ProcessGroup& group);

  /// The layer that makes a training call with these tensors; null if there is none.
  [[nodiscard]] const BatchNormLayer* find(const at::Tensor& running_mean,
                                           const at::Tensor& weight) const;
  /// Throws UsageError that names the tensor if one of these belongs to the model: batch_norm is
  /// called for it, but not by a layer that was there at the start.
  void expect_foreign(const at::Tensor& running_mean, const at::Tensor& weight) const;

  /// The batch_norm of `layer` in training, over the batches of all ranks.
  /// Collective: every rank runs the layer.
  [[nodiscard]] at::Tensor run(const BatchNormLayer& layer, const BatchNormCall& call);

  /// Takes part, without values, in the call `name` that other ranks have entered in group(), and
  /// updates the running statistics as they do. Returns false if no layer makes such a call.
  [[nodiscard]] bool answer(std::string_view name);

  /// Running statistics, which are equal on all ranks without being copied.
  [[nodiscard]] std::vector<at::Tensor> buffers() const;

  [[nodiscard]] const ProcessGroup& group() const noexcept { return group_; }

  /// From now on the layers are normal ones again. Any thread may call this.
  void stop() noexcept { stopped_ = true; }
  [[nodiscard]] bool has_stopped() const noexcept { return stopped_; }

 private:
  friend struct SyncedBatchNormNode;

  void collect(torch::nn::Module& module, const std::string& prefix,
               const std::shared_ptr<torch::nn::Module>& keep);
  template <typename Impl>
  bool add(torch::nn::Module& module, const std::string& name,
           const std::shared_ptr<torch::nn::Module>& keep);
  // In a second forward those of the first one; `moments` of this rank are over `count` values.
  [[nodiscard]] std::shared_ptr<const SyncedStatistics> statistics(const BatchNormLayer& layer,
                                                                   const ShiftedInput& input,
                                                                   double momentum);
  [[nodiscard]] std::shared_ptr<const SyncedStatistics> gather(const BatchNormLayer& layer,
                                                               const at::Tensor& moments,
                                                               const CallFlags& flags);
  void reduce_sums(const BatchNormLayer& layer, at::Tensor& sums) const;

  ObservedModule module_;
  std::vector<BatchNormLayer> layers_;
  std::vector<std::string> unrecognizable_;
  ProcessGroup group_;
  std::atomic<bool> stopped_ = false;
};

}  // namespace lockstep
