// The memory in which buckets are reduced with Shard::gradients. Whole gradients have no memory of
// their own then: a bucket has a part of this ring from its first gradient on, until this rank's
// shards of the average have been packed. A gradient that finds its part still in use waits for the
// earlier bucket there (reducer.h). Every bucket has the same offset on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

/// The length of a ring for buckets of these lengths: the longest one and two of the usual length,
/// or all of them if that is less.
[[nodiscard]] std::int64_t ring_length(std::span<const std::int64_t> buckets, std::int64_t usual);
/// Where each bucket begins in a ring of `length`, in which they follow each other in this order
/// and begin again where the next one does not fit.
[[nodiscard]] std::vector<std::int64_t> ring_begins(std::span<const std::int64_t> buckets,
                                                    std::int64_t length);

/// A bucket in a ring.
struct RingBucket {
  at::Tensor range;                    // one-dimensional
  std::vector<at::Tensor> parameters;  // its parts, in the form and order of Bucket::parameters
  std::vector<at::Tensor> padding;     // what is between them
};

/// One ring per segment.
class GradientRing {
 public:
  /// Collective: allocates registered memory of `group`.
  GradientRing(const FlatParameters& flat, const ProcessGroup& group, const BucketPlan& plan,
               std::size_t bucket_bytes);

  /// Whether it was made for buckets of this size, in any order.
  [[nodiscard]] bool fits(const Layout& layout, const BucketPlan& plan,
                          std::size_t bucket_bytes) const;
  /// The buckets of `plan` in this memory.
  [[nodiscard]] std::vector<RingBucket> buckets(const FlatParameters& flat,
                                                const BucketPlan& plan) const;

 private:
  std::vector<at::Tensor> memory_;  // by segment
};

}  // namespace lockstep
