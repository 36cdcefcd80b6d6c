// The buckets of a Ddp: their plan, the memory in which they are reduced, and their reducers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <utility>

#include "lockstep/ddp/ddp_state_internal.h"

namespace lockstep {
namespace {

// As calls see it.
at::Tensor in_reals(const at::Tensor& range) {
  return range.is_complex() ? at::view_as_real(range) : range;
}

// With shards: the owners of each bucket's elements.
BucketOwners owners_by_bucket(const FlatParameters& flat, const BucketPlan& plan) {
  BucketOwners all;
  for (const auto& bucket : plan.buckets) {
    const auto& shards = flat.shards().ownership();
    const auto spans = spans_in(shards, bucket.segment, bucket.begin, bucket.end);
    const int width = flat.values(bucket.segment).is_complex() ? 2 : 1;
    all.push_back(std::make_shared<const Owners>(owners_of(spans, width)));
  }
  return all;
}

// In the order of their slots.
std::vector<std::vector<BucketParameter>> parameters_by_bucket(const FlatParameters& flat,
                                                               const BucketPlan& plan) {
  std::vector<std::vector<BucketParameter>> all;
  for (const auto& bucket : plan.buckets) {
    auto& parameters = all.emplace_back();
    for (const int index : bucket.parameters) {
      const auto& each = flat.parameters()[static_cast<std::size_t>(index)];
      auto sizes = each.tensor.sizes().vec();
      if (each.tensor.is_complex()) sizes.push_back(2);
      const std::int64_t width = each.tensor.is_complex() ? 2 : 1;
      const auto begin = (each.slot.begin - bucket.begin) * width;
      parameters.push_back({.index = index,
                            .name = each.name,
                            .sizes = std::move(sizes),
                            .begin = begin,
                            .end = begin + each.slot.count * width});
    }
    std::sort(parameters.begin(), parameters.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return all;
}

}  // namespace

BucketPlan Ddp::State::plan(std::span<const int> arrival) const {
  return plan_buckets(flat.layout(), bucket_bytes, arrival,
                      flat.shards().is_sharded() ? &flat.shards().ownership() : nullptr);
}

void Ddp::State::make_hooked() {
  hooked = nullptr;
  if (!hook) return;
  auto by_hook = std::make_unique<HookedReduction>(group, flat.values(0).device(), *hook);
  hooked = by_hook.get();
  reduction = std::move(by_hook);
}

void Ddp::State::set_hook(GradientHook the_hook) {
  const auto plan = filled().plan();
  reducers.clear();  // they refer to the old reduction
  hook = std::move(the_hook);
  make_hooked();
  make_reducers(plan);
}

void Ddp::State::make_reducers(const BucketPlan& plan) {
  reducers.clear();
  const bool sharded = flat.shards().is_sharded();
  if (hooked != nullptr) {
    hooked->set_buckets(parameters_by_bucket(flat, plan));
  } else {
    reduction = sharded ? make_reduction_to_owners(group, owners_by_bucket(flat, plan))
                        : make_all_reduction(group);
  }
  ReducerOptions of_reducer{
      .timed = options.trace != nullptr, .sharded = sharded, .waits = !options.sync_batch_norm};
  if (flat.shards().packs_gradients()) {
    if (!ring || !ring->fits(flat.layout(), plan, bucket_bytes)) {
      ring.reset();
      ring.emplace(flat, group, plan, bucket_bytes);
    }
    of_reducer.ring = ring->buckets(flat, plan);
    of_reducer.keep = [this, buckets = plan.buckets, of_ring = of_reducer.ring](
                          int index, const GroupFlags& flags) {
      const auto& [segment, begin, end, parameters] = buckets[static_cast<std::size_t>(index)];
      const auto& range = of_ring[static_cast<std::size_t>(index)].range;
      if (!partial) {
        flat.pack(segment, begin, range);
      } else {
        // The divisor of the call: gradients with count(0) are part of the sum.
        flat.add_to_sums(segment, begin, range, std::max<std::int64_t>(1, flags.sum));
      }
    };
  }
  for (int buffer = 0; buffer < flat.num_gradient_buffers(); ++buffer) {
    std::vector<at::Tensor> ranges;
    for (const auto& [segment, begin, end, parameters] : plan.buckets) {
      ranges.push_back(in_reals(ring ? of_reducer.ring[ranges.size()].range
                                     : flat.gradients(segment, buffer).slice(0, begin, end)));
    }
    reducers.emplace_back(flat.slots(), buffer, plan, std::move(ranges), *reduction, group.page(),
                          of_reducer);
  }
}

// Once, after the first reduction: plans buckets in the order in which gradients arrived.
void Ddp::State::replan() {
  planned_by_arrival = true;
  const auto& reducer = reduced();
  const auto count = static_cast<std::int64_t>(flat.parameters().size());
  auto order = at::full({count}, -1, at::kInt);
  auto* at = order.mutable_data_ptr<int>();
  std::copy(reducer.arrival().begin(), reducer.arrival().end(), at);
  group.broadcast(order, group_flags.first_present, {.name = "order of gradients"}).wait();
  const std::vector<int> arrival(at, std::find(at, at + count, -1));
  if (arrival.empty()) return;
  make_reducers(plan(arrival));
}

}  // namespace lockstep
