// A task: a model, its data and its loss. One class for token models, one for models of samples;
// the loop (training.cpp) uses only this interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/train/saved_config.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"
#include "lockstep/train/metrics.h"

namespace torch::nn {
class Module;
}

namespace lockstep::cli {

/// The result on validation data: the mean loss and, for classes, the accuracy.
struct EvalResult {
  Mean loss;
  Accuracy accuracy;
};

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  [[nodiscard]] virtual torch::nn::Module& net() = 0;
  /// Moves the model to `device`. Batches are expected there.
  void move_to(at::Device device);
  [[nodiscard]] at::Device device() const noexcept { return device_; }
  [[nodiscard]] virtual const Dataset& training() const = 0;
  /// Null when there is no validation data.
  [[nodiscard]] virtual const Dataset* validation() const = 0;
  /// Changes of training samples.
  [[nodiscard]] virtual std::vector<Transform> transforms() const { return {}; }
  /// Checks of all samples while they are in host memory; these change nothing.
  [[nodiscard]] virtual std::vector<Transform> checks() const { return {}; }

  /// The mean loss of a batch.
  [[nodiscard]] virtual at::Tensor loss(const Batch& batch) = 0;
  /// Adds a batch of validation data to `result`. Call with gradients disabled.
  virtual void evaluate(const Batch& batch, EvalResult& result) = 0;
  /// Sample text of the model; empty for models without text.
  [[nodiscard]] virtual std::string sample(std::int64_t /*tokens*/) { return {}; }

  /// The unit of throughput ("tok", "img", "row"), and the number of units per sample.
  [[nodiscard]] virtual std::string unit() const = 0;
  [[nodiscard]] virtual std::int64_t units_per_sample() const = 0;
  /// Floating-point operations of the matrix products of forward and backward, per unit; 0:
  /// unknown.
  [[nodiscard]] virtual double operations_per_unit() const = 0;
  /// One line: "GPT, 4 layers, width 128, 4 heads, context 128, vocabulary 256".
  [[nodiscard]] virtual std::string describe() const = 0;

 private:
  at::Device device_ = at::kCPU;
};

/// The task of `saved`; relative paths start at `folder`. The weights come from LibTorch's random
/// generator. Throws UsageError for data that does not fit the model.
[[nodiscard]] std::unique_ptr<Task> make_task(const SavedConfig& saved, const std::string& folder);
[[nodiscard]] std::unique_ptr<Task> make_token_task(const SavedConfig& saved,
                                                    const std::string& folder);
[[nodiscard]] std::unique_ptr<Task> make_sample_task(const SavedConfig& saved,
                                                     const std::string& folder);

/// The paths of `files`, relative to `folder`.
[[nodiscard]] std::vector<std::string> paths_in(const std::string& folder,
                                                const std::vector<std::string>& files);
[[nodiscard]] std::int64_t num_parameters(const torch::nn::Module& net);

}  // namespace lockstep::cli
