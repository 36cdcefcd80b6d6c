// What is trained on what: a model, its data and its loss. One class for token models, one for
// models of samples; the loop (training.cpp) knows neither.
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

/// What is known of held-out data: the mean loss and, for classes, how many were right.
struct Scores {
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
  [[nodiscard]] virtual const Dataset& training() const = 0;
  /// Null when nothing is held out.
  [[nodiscard]] virtual const Dataset* held_out() const = 0;
  [[nodiscard]] virtual std::vector<Transform> transforms() const { return {}; }

  /// The mean loss of a batch.
  [[nodiscard]] virtual at::Tensor loss(const Batch& batch) = 0;
  /// Adds a batch of held-out data to `scores`. Without gradients.
  virtual void score(const Batch& batch, Scores& scores) = 0;
  /// Text from the model, to show what it has learned; empty for models that write none.
  [[nodiscard]] virtual std::string sample(std::int64_t /*tokens*/) { return {}; }

  /// What throughput counts, and how many of it a sample has: 128 "tok".
  [[nodiscard]] virtual std::string unit() const = 0;
  [[nodiscard]] virtual std::int64_t units_per_sample() const = 0;
  /// Operations of forward and backward for one unit, as far as they are matrix products; 0 where
  /// nobody has counted.
  [[nodiscard]] virtual double operations_per_unit() const = 0;
  /// One line: "GPT of 4 layers, width 128, 4 heads, context 128".
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// The task of `saved`; relative paths are from `folder`. Weights are drawn from LibTorch's
/// generator. Throws UsageError for data that does not fit the model.
[[nodiscard]] std::unique_ptr<Task> make_task(const SavedConfig& saved, const std::string& folder);
[[nodiscard]] std::unique_ptr<Task> make_token_task(const SavedConfig& saved,
                                                    const std::string& folder);
[[nodiscard]] std::unique_ptr<Task> make_sample_task(const SavedConfig& saved,
                                                     const std::string& folder);

/// The training files, as paths that can be opened.
[[nodiscard]] std::vector<std::string> paths_in(const std::string& folder,
                                                const std::vector<std::string>& files);
[[nodiscard]] std::int64_t num_parameters(const torch::nn::Module& net);

}  // namespace lockstep::cli
