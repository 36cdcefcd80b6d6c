#include "lockstep/ddp/replica_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::span<const std::byte> window_of(const at::Tensor& segment, std::int64_t elements,
                                     std::int64_t number) {
  const auto bytes = elements * static_cast<std::int64_t>(segment.element_size());
  constexpr std::int64_t kLine = 64;
  const auto share = (bytes / ReplicaCheck::kWindows + kLine - 1) / kLine * kLine;
  const auto length = std::max(ReplicaCheck::kLeastBytes, share);
  const auto num_windows = std::max<std::int64_t>(1, (bytes + length - 1) / length);
  const auto begin = number % num_windows * length;
  return {static_cast<const std::byte*>(segment.const_data_ptr()) + begin,
          static_cast<std::size_t>(std::min(length, bytes - begin))};
}

// The digest of every parameter's value, on all ranks: one row a rank.
at::Tensor gather_digests(const FlatParameters& flat, const ProcessGroup& group) {
  const auto count = static_cast<std::int64_t>(flat.parameters().size());
  auto own = at::empty({count}, at::kLong);
  auto* out = own.mutable_data_ptr<std::int64_t>();
  for (const auto& parameter : flat.parameters()) {
    *out++ = static_cast<std::int64_t>(digest_of(parameter.tensor));
  }
  auto all = at::empty({group.size(), count}, at::kLong);
  group.all_gather(all, own, {.name = "replica digests"}).wait();
  return all;
}

}  // namespace

void ReplicaCheck::look(const FlatParameters& flat) {
  digest_ = 0;
  for (int i = 0; i < flat.num_segments(); ++i) {
    const auto& segment = flat.layout().segments[static_cast<std::size_t>(i)];
    // What does not train may hold gradients of another time.
    const auto gradients = window_of(flat.gradients(i), segment.trains_length, window_);
    const auto values = window_of(flat.values(i), segment.length, window_);
    digest_ = digest_ * 31 + lockstep::digest(gradients) + 7 * lockstep::digest(values);
  }
  ++window_;
}

void ReplicaCheck::report(const FlatParameters& flat, const ProcessGroup& group) const {
  const auto digests = gather_digests(flat, group);
  const auto rows = digests.accessor<std::int64_t, 2>();
  const auto parameters = flat.parameters();
  for (int rank = 1; rank < group.size(); ++rank) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i);
      if (rows[rank][column] == rows[0][column]) continue;
      throw PeerError(
          group.global_rank(rank),
          fmt::format("the replicas are no longer equal: parameter {} differs between rank {} and "
                      "rank {}. Every rank must make the same steps with the same learning rate, "
                      "clipping and other settings; go "
                      "back to a checkpoint",
                      parameters[i].name, group.global_rank(0), group.global_rank(rank)));
    }
  }
  auto windows = at::empty({group.size()}, at::kLong);
  const auto own = at::zeros({1}, at::kLong).fill_(static_cast<std::int64_t>(digest_));
  group.all_gather(windows, own, {.name = "window digests"}).wait();
  const auto* said = windows.const_data_ptr<std::int64_t>();
  const auto other = std::find_if(said, said + group.size(),
                                  [&](std::int64_t digest) { return digest != said[0]; });
  const auto rank = static_cast<int>(other - said) % group.size();
  throw PeerError(
      group.global_rank(rank),
      fmt::format("the averaged gradients of the last step differed between rank {} and rank {}, "
                  "though parameters are still equal: memory was written to that belongs to the "
                  "reduction, or a rank's memory is faulty",
                  group.global_rank(0), group.global_rank(rank)));
}

}  // namespace lockstep
