#include "lockstep/ddp/bucket_plan.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// By parameter, the position at which its gradient is expected.
std::vector<int> expected_at(const Layout& layout, std::span<const int> arrival) {
  const auto count = static_cast<int>(layout.slots.size());
  std::vector<int> at(layout.slots.size(), count);
  if (arrival.empty()) {
    for (int i = 0; i < count; ++i) at[static_cast<std::size_t>(i)] = count - 1 - i;
  }
  for (std::size_t i = 0; i < arrival.size(); ++i) {
    at[static_cast<std::size_t>(arrival[i])] = static_cast<int>(i);
  }
  return at;
}

// Where the span that holds the element before `end` ends: it includes the padding behind a slot.
std::int64_t end_of_span(const Ownership& shards, int segment, std::int64_t end) {
  const auto found =
      std::find_if(shards.spans.begin(), shards.spans.end(), [&](const ShardedSpan& span) {
        return span.segment == segment && span.begin < end && end <= span.end();
      });
  return found == shards.spans.end() ? end : found->end();
}

void cut(const Layout& layout, int number, std::size_t bucket_bytes, const Ownership* shards,
         std::vector<Bucket>& buckets) {
  const auto& segment = layout.segments[static_cast<std::size_t>(number)];
  const auto element_bytes = c10::elementSize(segment.dtype);
  auto limit =
      bucket_bytes == kOneBucket ? bucket_bytes : std::min(kFirstBucketBytes, bucket_bytes);
  bool open = false;
  bool is_begun = false;
  for (const int index : segment.parameters) {
    const auto& slot = layout.slots[static_cast<std::size_t>(index)];
    if (slot.begin == segment.trains_length) open = false;
    // The span in which the last bucket ends may hold this slot too.
    if (!open && is_begun) open = slot.begin < buckets.back().end;
    is_begun = true;
    if (!open) buckets.push_back({.segment = number, .begin = slot.begin, .end = slot.begin});
    auto& bucket = buckets.back();
    bucket.parameters.push_back(index);
    bucket.end = std::max(bucket.end, slot.begin + slot.count);
    if (shards != nullptr) bucket.end = end_of_span(*shards, number, bucket.end);
    open = static_cast<std::size_t>(bucket.end - bucket.begin) * element_bytes < limit;
    if (!open) limit = bucket_bytes;
  }
}

}  // namespace

BucketPlan plan_buckets(const Layout& layout, std::size_t bucket_bytes,
                        std::span<const int> arrival, const Ownership* shards) {
  BucketPlan plan;
  for (int i = 0; i < static_cast<int>(layout.segments.size()); ++i) {
    cut(layout, i, bucket_bytes, shards, plan.buckets);
  }
  const auto at = expected_at(layout, arrival);
  const auto full_at = [&](const Bucket& bucket) {
    int last = 0;
    for (const int index : bucket.parameters) {
      last = std::max(last, at[static_cast<std::size_t>(index)]);
    }
    return last;
  };
  const auto trains = [&](const Bucket& bucket) {
    return bucket.begin < layout.segments[static_cast<std::size_t>(bucket.segment)].trains_length;
  };
  std::stable_sort(plan.buckets.begin(), plan.buckets.end(), [&](const auto& a, const auto& b) {
    return std::pair(!trains(a), full_at(a)) < std::pair(!trains(b), full_at(b));
  });
  plan.bucket_of.resize(layout.slots.size());
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    for (const int index : plan.buckets[i].parameters) {
      plan.bucket_of[static_cast<std::size_t>(index)] = static_cast<int>(i);
    }
  }
  return plan;
}

}  // namespace lockstep
