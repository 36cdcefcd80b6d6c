// For tests of gradient hooks: hooks whose result is that of an all-reduce, in every form.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

// A reduce-scatter, then an all-gather: two calls, the second one after a resumption.
inline HookTask reduce_in_two_calls(GradientBucket& bucket) {
  const auto ranks = static_cast<std::int64_t>(bucket.num_ranks());
  const auto part = (bucket.values().numel() + ranks - 1) / ranks;
  const auto dtype = bucket.values().scalar_type();
  auto padded = bucket.scratch("padded", part * ranks, dtype);
  auto own = bucket.scratch("own", part, dtype);
  bucket.encode([&] {
    padded.zero_();
    padded.narrow(0, 0, bucket.values().numel()).copy_(bucket.values());
  });
  co_await bucket.reduce_scatter(own, padded);
  co_await bucket.all_gather(padded, own);
  bucket.decode([&] { bucket.values().copy_(padded.narrow(0, 0, bucket.values().numel())); });
}

inline HookTask reduce_in_one_call(GradientBucket& bucket) {
  co_await bucket.all_reduce(bucket.values());
}

// Both halves at once, before the first co_await.
inline HookTask reduce_in_halves(GradientBucket& bucket) {
  const auto middle = bucket.values().numel() / 2;
  auto lower = bucket.values().narrow(0, 0, middle);
  auto upper = bucket.values().narrow(0, middle, bucket.values().numel() - middle);
  const auto first = bucket.all_reduce(lower);
  const auto second = bucket.all_reduce(upper);
  co_await first;
  co_await second;
}

// Runs `inner` on a copy of the values.
inline GradientHook around(GradientHook inner) {
  return {[inner](GradientBucket& bucket) -> HookTask {
            auto copy =
                bucket.scratch("copy", bucket.values().numel(), bucket.values().scalar_type());
            copy.copy_(bucket.values());
            auto copied = bucket.with_values(copy);
            co_await inner(copied);
            bucket.values().copy_(copy);
          },
          "around " + inner.name()};
}

// The sum, divided by the hook itself. The divisor is a tensor: on a GPU, LibTorch computes a
// division by a number as a multiplication by its reciprocal, which rounds differently.
inline HookTask reduce_and_divide(GradientBucket& bucket) {
  co_await bucket.all_reduce(bucket.values(), ReduceOp::sum);
  bucket.values().div_(torch::full({}, bucket.total_weight(), bucket.values().options()));
}

/// Each gives bit-identical averages.
inline std::vector<GradientHook> equal_hooks() {
  const GradientHook two_calls(reduce_in_two_calls, "two calls");
  return {all_reduce_hook(),
          {reduce_in_one_call, "one call"},
          two_calls,
          {reduce_in_halves, "halves"},
          {reduce_and_divide, "sum and division"},
          around(all_reduce_hook()),
          around(around(two_calls))};
}

}  // namespace lockstep
