#include "lockstep/ddp/replica_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::span<const std::byte> window_of(const at::Tensor& segment, std::int64_t elements,
                                     std::int64_t number) {
  const auto bytes = elements * static_cast<std::int64_t>(segment.element_size());
  constexpr std::int64_t kLine = 64;
  const auto part = (bytes / ReplicaCheck::kWindows + kLine - 1) / kLine * kLine;
  const auto length = std::max(ReplicaCheck::kLeastBytes, part);
  const auto num_windows = std::max<std::int64_t>(1, (bytes + length - 1) / length);
  const auto begin = number % num_windows * length;
  return {static_cast<const std::byte*>(segment.const_data_ptr()) + begin,
          static_cast<std::size_t>(std::min(length, bytes - begin))};
}

// The digests of all parameters on all ranks, one row per rank.
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

std::optional<int> find_differing_rank(const ProcessGroup& group, std::uint64_t digest,
                                       std::string_view name) {
  const auto all = gather_values(group, digest, {.name = name});
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](std::uint64_t of_rank) { return of_rank != all.front(); });
  if (other == all.end()) return std::nullopt;
  return static_cast<int>(other - all.begin());
}

void ReplicaCheck::look(const FlatParameters& flat) {
  digest_ = 0;
  for (int i = 0; i < flat.num_segments(); ++i) {
    const auto& segment = flat.layout().segments[static_cast<std::size_t>(i)];
    if (!segment.device.is_cpu()) continue;  // in a group of one rank: nothing to compare
    // Slots of frozen parameters may hold old gradients that differ between ranks.
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
                      "rank {}. Every rank must make the same steps with the same lr, clipping and "
                      "other settings; resume from a checkpoint",
                      parameters[i].name, group.global_rank(0), group.global_rank(rank)));
    }
  }
  // Rank 0 if the digests are equal by now.
  const int rank = find_differing_rank(group, digest_, "window digests").value_or(0);
  throw PeerError(
      group.global_rank(rank),
      fmt::format("the averaged gradients of the last step differ between rank {} and rank {}, "
                  "although the parameters are equal: the program wrote to gradients during the "
                  "reduction, or the memory of a rank is faulty",
                  group.global_rank(0), group.global_rank(rank)));
}

}  // namespace lockstep
