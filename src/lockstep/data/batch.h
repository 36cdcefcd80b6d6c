// A batch as the training loop gets it: tensors, and what it needs to know about them.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/data/sample_layout.h"

namespace lockstep {

/// What getting one batch took.
struct BatchMetrics {
  std::chrono::nanoseconds wait{0};  // the training thread stood still
  std::chrono::nanoseconds read{0};  // a worker read and transformed
  std::size_t bytes = 0;             // handed out
  int ready = 0;                     // batches that lay ready when this one was asked for
};

/// A value: copies share the tensors, and tensors that are kept are never written again.
struct Batch {
  std::vector<at::Tensor> tensors;    // one a field, [count, shape...]
  std::vector<std::int64_t> samples;  // which sample each row is
  std::int64_t epoch = 0;
  std::int64_t position = 0;        // of the step's first sample, over all ranks
  std::int64_t global_samples = 0;  // of the whole step: all ranks, all its micro-batches
  std::int64_t repeated = 0;        // of those, how many a padded tail has given before
  int micro_batch = 0;              // its number within the step, below the accumulation
  bool ends_step = false;           // the optimizer's turn
  bool ends_epoch = false;
  std::vector<std::int64_t> skipped;  // samples of this batch that could not be read
  BatchMetrics metrics;
  std::shared_ptr<const SampleLayout> layout;  // shared with the loader, which may end first

  /// The number of rows. It may be 0 at the end of an epoch with an uneven tail.
  [[nodiscard]] std::int64_t count() const noexcept {
    return static_cast<std::int64_t>(samples.size());
  }
  /// The tensor of a field. Throws UsageError that lists the fields there are.
  [[nodiscard]] const at::Tensor& operator[](std::string_view field) const {
    return tensors[static_cast<std::size_t>(layout->index_of(field))];
  }
  /// The two fields that nearly every data set has.
  [[nodiscard]] const at::Tensor& input() const { return (*this)["input"]; }
  [[nodiscard]] const at::Tensor& target() const { return (*this)["target"]; }
};

}  // namespace lockstep
