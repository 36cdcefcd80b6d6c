// The state of a hook: one tensor per parameter, in memory that is laid out for the buckets.
//
// A hook reads its state while it encodes, and writes the next state, which replaces the present
// one only if the step succeeds. So a bucket has two memories: `now` and `next`. They are flat, in
// an order that the hook chooses. The state is stored by parameter: when the buckets change, the
// tensors move to the memory of their new bucket.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp/gradient_bucket.h"

namespace lockstep {

class ParameterMemory {
 public:
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// Where the state of a parameter is.
  struct StateRange {
    std::string name;                 // of the parameter
    std::vector<std::int64_t> sizes;  // of its state
    std::int64_t begin = 0;           // in the memory of its bucket
  };
  /// The memory of one bucket.
  struct Memory {
    at::Tensor now;
    at::Tensor next;
    void commit() noexcept { std::swap(now, next); }
  };
  struct LaidOut {
    std::shared_ptr<Memory> memory;
    std::vector<StateRange> fresh;  // ranges of parameters that had no state; zeros in `now`
  };

  /// Makes the memory of bucket `bucket`, of `length` elements, and moves the state of its
  /// parameters there. `next` is zero.
  /// Throws UsageError if the state of a parameter has other sizes.
  [[nodiscard]] LaidOut lay_out(int bucket, const std::vector<StateRange>& ranges,
                                std::int64_t length, const at::TensorOptions& options);

  /// The memory of bucket `bucket`; null before lay_out(), and after load_shapes_json().
  [[nodiscard]] std::shared_ptr<Memory> of(int bucket) const;

  /// The present state by parameter.
  [[nodiscard]] Tensors tensors() const;
  /// {"<parameter>": {"dtype": "float32", "sizes": […]}, …}.
  [[nodiscard]] std::string shapes_json() const;
  /// Replaces the state by zeros of these shapes. Throws UsageError for invalid JSON.
  void load_shapes_json(const std::string& json);

 private:
  struct Entry {
    std::shared_ptr<Memory> memory;  // null: `loaded`
    StateRange range;
    at::Tensor loaded = {};

    [[nodiscard]] at::Tensor tensor() const;
  };

  std::map<std::string, Entry> entries_;
  std::map<int, std::shared_ptr<Memory>> memories_;  // by bucket
};

/// Whether `bucket` has the parameters of `known` at the same positions.
[[nodiscard]] bool has_parameters(const GradientBucket& bucket,
                                  const std::vector<BucketParameter>& known);

}  // namespace lockstep
