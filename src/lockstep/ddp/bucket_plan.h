// Which gradients are reduced together: a pure function of the layout, a size and, later, the order
// in which gradients arrived. The plan moves no memory and does not change results by a bit.
//
// A *bucket* is a range of one segment. It is closed when it has reached the bucket size, so it may
// be larger. The first bucket of a segment is small, so that reducing begins early. Trainable and
// frozen parameters are never in one bucket. Buckets are numbered and reduced in the order in which
// they are expected to be complete. With shards a bucket is a run of whole spans (ownership.h), so
// that every rank has its shards of every bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/flat/layout.h"
#include "lockstep/flat/ownership.h"

namespace lockstep {

constexpr std::size_t kDefaultBucketBytes = 25U << 20;
constexpr std::size_t kFirstBucketBytes = 1U << 20;
/// A value for bucket_bytes: one bucket per dtype and device, without a small first one.
constexpr std::size_t kOneBucket = std::numeric_limits<std::size_t>::max();

struct Bucket {
  int segment = 0;
  std::int64_t begin = 0;  // elements of the segment
  std::int64_t end = 0;
  std::vector<int> parameters = {};  // indices by registration
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  std::vector<int> bucket_of;  // by parameter
};

/// `arrival` lists the parameters in the order in which their gradients arrived; parameters that
/// are not in it come last. If it is empty, the order of the layout is used. `shards`, if it is not
/// null, has the spans that are not cut.
[[nodiscard]] BucketPlan plan_buckets(const Layout& layout, std::size_t bucket_bytes,
                                      std::span<const int> arrival = {},
                                      const Ownership* shards = nullptr);

}  // namespace lockstep
