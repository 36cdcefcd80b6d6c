#include "lockstep/ddp/gradient_ring.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <numeric>

namespace lockstep {
namespace {

// Places begin on pages, so that buckets share no cache line.
constexpr std::int64_t kPageBytes = 4 << 10;

std::int64_t width_of(const Segment& segment) {
  return static_cast<std::int64_t>(c10::elementSize(segment.dtype));
}

std::int64_t whole_pages(std::int64_t elements, std::int64_t width) {
  const auto page = kPageBytes / width;
  return (elements + page - 1) / page * page;
}

// Of the buckets of a segment, in their order.
std::vector<std::int64_t> lengths_in(const Layout& layout, const BucketPlan& plan, int segment) {
  const auto width = width_of(layout.segments[static_cast<std::size_t>(segment)]);
  std::vector<std::int64_t> lengths;
  for (const auto& bucket : plan.buckets) {
    if (bucket.segment == segment) lengths.push_back(whole_pages(bucket.end - bucket.begin, width));
  }
  return lengths;
}

std::int64_t length_for(const Layout& layout, const BucketPlan& plan, int segment,
                        std::size_t bucket_bytes) {
  const auto width = width_of(layout.segments[static_cast<std::size_t>(segment)]);
  // kOneBucket is the largest number.
  const auto usual = std::min<std::size_t>(bucket_bytes, std::size_t{1} << 40);
  return ring_length(lengths_in(layout, plan, segment),
                     whole_pages(static_cast<std::int64_t>(usual) / width, width));
}

RingBucket ring_bucket_of(const FlatParameters& flat, const Bucket& bucket,
                          const at::Tensor& range) {
  RingBucket placed{.range = range, .parameters = {}, .padding = {}};
  std::vector<Slot> slots;
  for (const int index : bucket.parameters) {
    const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
    const auto begin = parameter.slot.begin - bucket.begin;
    placed.parameters.push_back(range.narrow(0, begin, parameter.slot.count)
                                    .as_strided(parameter.tensor.sizes(),
                                                parameter.tensor.strides(),
                                                range.storage_offset() + begin));
    slots.push_back(parameter.slot);
  }
  std::sort(slots.begin(), slots.end(),
            [](const Slot& a, const Slot& b) { return a.begin < b.begin; });
  auto end = bucket.begin;
  const auto add_padding = [&](std::int64_t to) {
    if (end < to) placed.padding.push_back(range.narrow(0, end - bucket.begin, to - end));
  };
  for (const auto& slot : slots) {
    add_padding(slot.begin);
    end = slot.begin + slot.count;
  }
  add_padding(bucket.end);
  return placed;
}

}  // namespace

std::int64_t ring_length(std::span<const std::int64_t> buckets, std::int64_t usual) {
  if (buckets.empty()) return 0;
  const auto all = std::accumulate(buckets.begin(), buckets.end(), std::int64_t{0});
  return std::min(all, *std::max_element(buckets.begin(), buckets.end()) + 2 * usual);
}

std::vector<std::int64_t> ring_begins(std::span<const std::int64_t> buckets, std::int64_t length) {
  std::vector<std::int64_t> begins;
  std::int64_t next = 0;
  for (const auto bucket : buckets) {
    if (next + bucket > length) next = 0;
    begins.push_back(next);
    next += bucket;
  }
  return begins;
}

GradientRing::GradientRing(const FlatParameters& flat, const ProcessGroup& group,
                           const BucketPlan& plan, std::size_t bucket_bytes) {
  for (int i = 0; i < flat.num_segments(); ++i) {
    const auto& segment = flat.layout().segments[static_cast<std::size_t>(i)];
    const auto length = length_for(flat.layout(), plan, i, bucket_bytes);
    memory_.push_back(
        group.allocate(length * width_of(segment), segment.device).view(segment.dtype));
  }
}

bool GradientRing::fits(const Layout& layout, const BucketPlan& plan,
                        std::size_t bucket_bytes) const {
  for (int i = 0; i < static_cast<int>(memory_.size()); ++i) {
    const auto length = memory_[static_cast<std::size_t>(i)].numel();
    if (length != length_for(layout, plan, i, bucket_bytes)) return false;
  }
  return true;
}

std::vector<RingBucket> GradientRing::buckets(const FlatParameters& flat,
                                              const BucketPlan& plan) const {
  std::vector<std::vector<std::int64_t>> begins;
  for (int i = 0; i < flat.num_segments(); ++i) {
    begins.push_back(ring_begins(lengths_in(flat.layout(), plan, i),
                                 memory_[static_cast<std::size_t>(i)].numel()));
  }
  std::vector<std::size_t> next(begins.size(), 0);
  std::vector<RingBucket> placed;
  for (const auto& bucket : plan.buckets) {
    const auto segment = static_cast<std::size_t>(bucket.segment);
    const auto begin = begins[segment][next[segment]++];
    placed.push_back(
        ring_bucket_of(flat, bucket, memory_[segment].narrow(0, begin, bucket.end - bucket.begin)));
  }
  return placed;
}

}  // namespace lockstep
