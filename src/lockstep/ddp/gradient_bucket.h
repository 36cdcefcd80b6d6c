// What a gradient hook works on: the gradients of one bucket, and the calls that reduce them. A
// hook makes all its calls through the bucket, which adds the name, this rank's weight and the call
// flags of the step.
//
// The order of calls is the same on all ranks, whatever the timing. Calls before the first co_await
// are made in the group of the Ddp, in bucket order, while backward() still computes other
// gradients. Later calls are made in a second group of the same ranks, bucket by bucket: all of
// bucket 0, then all of bucket 1. So every rank must make the same calls for a bucket. What a hook
// does may depend on the bucket's index, shapes and dtype and on results of earlier calls, which
// are equal on all ranks, but not on this rank's gradients.
//
// A rank that sits out, or whose backward() failed, runs the hook too: with zeros or leftover
// values, and with weight 0 or in a step that no rank uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// A parameter in a bucket.
struct BucketParameter {
  int index = 0;                         // by registration
  std::string name = {};                 // the module's
  std::vector<std::int64_t> sizes = {};  // its shape; a complex one has a last dimension of 2
  // Its elements of GradientBucket::values(), in the order of its memory: for a channels-last
  // parameter not that of its shape. Elements between two parameters are padding.
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class GradientBucket {
 public:
  class State;
  explicit GradientBucket(State& state);

  /// The gradients: one-dimensional, contiguous. The hook replaces them by the average over the
  /// ranks, bit-identical on all ranks: the sum of all ranks' values divided by total_weight().
  /// Padding is zero and must stay zero.
  [[nodiscard]] at::Tensor& values() noexcept { return values_; }
  [[nodiscard]] const at::Tensor& values() const noexcept { return values_; }
  /// The part of values() that belongs to `parameter`; one-dimensional.
  [[nodiscard]] at::Tensor values_of(const BucketParameter& parameter) const;
  /// In the order of their elements.
  [[nodiscard]] std::span<const BucketParameter> parameters() const noexcept;
  /// The number of the bucket. Buckets change once, after the first step, and in adopt() and
  /// rebind(): state that lives longer is stored by parameter.
  [[nodiscard]] int index() const noexcept;
  /// Whether this is the last bucket of the step that is reduced. Frozen buckets are not.
  [[nodiscard]] bool is_last() const noexcept;
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int num_ranks() const noexcept;
  /// The weight of this rank in the average: with Normalize::by_count the number of its samples,
  /// 0 if it sits out. values() are already a sum of that weight: do not multiply by it.
  [[nodiscard]] std::int64_t weight() const noexcept;
  /// The sum of the weights of all ranks, at least 1. Valid once the first call has been awaited.
  [[nodiscard]] std::int64_t total_weight() const;

  // The calls of ProcessGroup. Collective: every rank makes the same call. They return at once;
  // co_await the Work, or return it from a hook of the simple form, before the tensors are touched.
  // Calls that were not awaited are completed at the end of the hook. Throw as ProcessGroup.

  /// With weighted_average: the sum over the ranks divided by total_weight(). Sums of 16-bit values
  /// are computed in float32 and rounded once.
  [[nodiscard]] Work all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::weighted_average);
  [[nodiscard]] Work reduce_scatter(at::Tensor& output, const at::Tensor& input,
                                    ReduceOp op = ReduceOp::weighted_average);
  [[nodiscard]] Work all_gather(at::Tensor& output, const at::Tensor& input);
  [[nodiscard]] Work all_to_all(at::Tensor& output, const at::Tensor& input);

  /// A one-dimensional tensor on the device of values(), for encoded values. The memory of one
  /// `name` is kept for the next step, with its content, as long as count and dtype stay equal, and
  /// the buckets; at first it is not initialized. So a hook allocates nothing in later steps.
  [[nodiscard]] at::Tensor scratch(std::string_view name, std::int64_t count, at::ScalarType dtype);

  /// Run `function` at once and add its time to BucketRecord::encode or decode. Do not co_await
  /// inside.
  template <typename Function>
  void encode(Function&& function) {
    const auto begin = Clock::now();
    std::forward<Function>(function)();
    add_encode(Clock::now() - begin);
  }
  template <typename Function>
  void decode(Function&& function) {
    const auto begin = Clock::now();
    std::forward<Function>(function)();
    add_decode(Clock::now() - begin);
  }

  /// Runs `change` when the step has succeeded: all hooks of all ranks have ended, a rank had a
  /// sample, and no rank had a non-finite gradient or called report_non_finite(). It runs on all
  /// ranks or on none, in the order of buckets and calls, before backward() returns. A hook that
  /// keeps state from step to step, such as error feedback, changes it only here; it stores what it
  /// needs in `change` or in scratch(). `change` must not throw.
  void on_commit(std::function<void()> change);
  /// A value that this rank sends, or the result, is non-finite though its gradients were finite:
  /// the encoding overflowed. The step counts as non-finite on all ranks (Ddp::non_finite()). In
  /// the simple form, call it before the call of the bucket.
  void report_non_finite() noexcept;

  /// Whether this is a measurement by compression `automatic`: values() are a copy, nothing is
  /// committed. A hook that begins to compress at a later step compresses at once.
  [[nodiscard]] bool is_trial() const noexcept;

  /// The same bucket with other values, for a hook that wraps another one: it encodes values() into
  /// a tensor of its own, runs the inner hook on bucket.with_values(encoded), and decodes. `values`
  /// has as many elements as values(), so that the parameters keep their positions. Calls, times
  /// and commits count for this bucket; scratch() has names of its own, per level.
  [[nodiscard]] GradientBucket with_values(at::Tensor values) const;

 private:
  using Clock = std::chrono::steady_clock;
  void add_encode(Clock::duration time) noexcept;
  void add_decode(Clock::duration time) noexcept;

  State* state_;
  at::Tensor values_;
  int level_ = 0;  // of wrapping
};

}  // namespace lockstep
