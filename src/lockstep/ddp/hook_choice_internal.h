// Which candidate of GradientHook::fastest_of() reduces which bucket: a measurement on the group of
// the Ddp, and a pure decision from its figures.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/ddp/gradient_bucket.h"
#include "lockstep/ddp/gradient_bucket_state_internal.h"
#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

/// One candidate on one bucket: seconds, of the slowest rank.
struct HookTrial {
  double encode = 0;
  double decode = 0;
  double total = 0;  // from the first call to the end; the rest of it is the wire
  double wire_bytes = 0;
};

/// The index of the candidate with the smallest total; the first one of equals.
[[nodiscard]] std::size_t fastest(std::span<const HookTrial> trials);

/// "buckets of 25.0 MiB: int8: 3.1 ms encode + 210.0 ms wire (6.4 MiB) + 2.0 ms decode = 215.1 ms;
/// none 840.2 ms, bf16 431.0 ms".
[[nodiscard]] std::string describe_choice(std::int64_t bytes,
                                          std::span<const GradientHook> candidates,
                                          std::span<const HookTrial> trials);

/// The buckets that are measured for all: for each bucket the index of one whose size differs by
/// less than a factor of two. Buckets of 0 bytes are their own.
[[nodiscard]] std::vector<std::size_t> represented_by(std::span<const std::int64_t> bytes);

/// By bucket, the index of its candidate. `values` are gradients, which do not change; undefined
/// for a frozen bucket, which gets the first candidate. Rank 0 logs the choice. Where all ranks are
/// on one host nothing is measured. Collective. Throws PeerError, and what a candidate throws.
[[nodiscard]] std::vector<int> choose_hooks(
    const GradientBucket::State::Groups& groups, at::Device device,
    std::span<const GradientHook> candidates,
    std::span<const std::vector<BucketParameter>> parameters, std::span<const at::Tensor> values);

}  // namespace lockstep
