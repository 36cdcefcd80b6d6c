// One local batch, as the training loop receives it from the loader: tensors and their description.
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

/// The cost of one batch.
struct BatchMetrics {
  std::chrono::nanoseconds wait{0};  // the training thread was blocked in next()
  std::chrono::nanoseconds read{0};  // a worker read and transformed the samples
  std::size_t bytes = 0;             // size of the tensors
  int ready = 0;                     // batches that were ready when this one was requested
};

/// A value. Copies share the tensors. The loader never overwrites a tensor that the caller still
/// holds.
struct Batch {
  std::vector<at::Tensor> tensors;    // one tensor per field, [count, shape...]
  std::vector<std::int64_t> samples;  // the sample index of each row
  std::int64_t epoch = 0;
  std::int64_t position = 0;        // of the step's first sample, counted over all ranks
  std::int64_t global_samples = 0;  // in the whole step: all ranks, all micro-batches
  std::int64_t repeated = 0;        // of global_samples, how many Tail::pad has repeated
  int micro_batch = 0;              // index within the step, 0 to accumulation - 1
  bool ends_step = false;           // last micro-batch of the step: call the optimizer after it
  bool ends_epoch = false;
  std::vector<std::int64_t> skipped;  // samples of this batch that were unreadable and left out
  BatchMetrics metrics;
  std::shared_ptr<const SampleLayout> layout;  // shared with the loader; outlives it if needed

  /// The number of rows. It can be 0 at the end of an epoch with Tail::uneven.
  [[nodiscard]] std::int64_t count() const noexcept {
    return static_cast<std::int64_t>(samples.size());
  }
  /// The tensor of the field named `field`. Throws UsageError, listing the fields, if there is no
  /// such field.
  [[nodiscard]] const at::Tensor& operator[](std::string_view field) const {
    return tensors[static_cast<std::size_t>(layout->index_of(field))];
  }
  /// The fields "input" and "target", which nearly every data set has. Throw as operator[] does.
  [[nodiscard]] const at::Tensor& input() const { return (*this)["input"]; }
  [[nodiscard]] const at::Tensor& target() const { return (*this)["target"]; }
};

}  // namespace lockstep
