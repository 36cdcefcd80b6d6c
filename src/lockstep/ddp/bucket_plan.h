// Which gradients are reduced together. Pure: the plan is a value made from the layout, a size and,
// later, the order in which gradients came; it moves no memory and changes no bit of a result.
//
// A bucket is a range of one segment. It closes when it has reached its size, so it may be larger;
// the first of a segment is small, so that reducing begins early. What trains and what does not
// never share one. Buckets are numbered in the order in which they are expected to be full, which
// is the order they are reduced in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/flat/layout.h"

namespace lockstep {

constexpr std::size_t kDefaultBucketBytes = 25U << 20;
constexpr std::size_t kFirstBucketBytes = 1U << 20;
/// As bucket_bytes: one bucket for each dtype and device, without a small first one.
constexpr std::size_t kOneBucket = std::numeric_limits<std::size_t>::max();

struct Bucket {
  int segment = 0;
  std::int64_t begin = 0;  // elements of the segment
  std::int64_t end = 0;
  std::vector<int> parameters = {};  // by number of registration
};

struct BucketPlan {
  std::vector<Bucket> buckets;
  std::vector<int> bucket_of;  // by parameter
};

/// `arrival` holds the parameters in the order in which their gradients came; empty: the layout's.
/// Parameters that are not in it come last.
[[nodiscard]] BucketPlan plan_buckets(const Layout& layout, std::size_t bucket_bytes,
                                      std::span<const int> arrival = {});

}  // namespace lockstep
