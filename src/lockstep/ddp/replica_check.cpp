#include "lockstep/ddp/replica_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/moving_window.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

ByteRange window_of(const at::Tensor& segment, std::int64_t elements, std::int64_t number) {
  return moving_window(elements * static_cast<std::int64_t>(segment.element_size()), number);
}

// Slots of frozen parameters may hold old gradients that differ between ranks. With shards, each
// rank has averages of its own elements only, and gradients are not compared.
ByteRange window_of_gradients(const FlatParameters& flat, int segment, std::int64_t number) {
  const auto length = flat.layout().segments[static_cast<std::size_t>(segment)].trains_length;
  return window_of(flat.gradients(segment), length, number);
}

std::uint64_t digest_of_range(const at::Tensor& segment, const ByteRange& range) {
  const auto* const first = static_cast<const std::byte*>(segment.const_data_ptr());
  return digest({first + range.begin, first + range.end});
}

std::uint64_t digest_gradients(const FlatParameters& flat, int segment, std::int64_t number) {
  return digest_of_range(flat.gradients(segment), window_of_gradients(flat, segment, number));
}

std::uint64_t with_number(std::uint64_t all, std::uint64_t number) { return all * 31 + number; }

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

void ReplicaCheck::look(const FlatParameters& flat, int num_ranks) {
  const auto& segments = flat.layout().segments;
  if (!flat.layout().is_on_cpu()) {
    if (num_ranks > 1) look_on_device(flat);
    ++window_;
    return;
  }
  digest_ = 0;
  for (int i = 0; i < flat.num_segments(); ++i) {
    const auto& segment = segments[static_cast<std::size_t>(i)];
    const auto values = window_of(flat.values(i), segment.length, window_);
    if (!flat.shards().is_sharded()) {
      digest_ = with_number(digest_, digest_gradients(flat, i, window_));
    }
    digest_ = with_number(digest_, digest_of_range(flat.values(i), values));
  }
  ++window_;
}

void ReplicaCheck::look_on_device(const FlatParameters& flat) {
  // A captured comparison would be made in every replay, and read in none.
  if (is_capturing(current_stream(flat.values(0).device()))) {
    is_known_ = false;
    return;
  }
  const at::NoGradGuard off;
  std::vector<at::Tensor> digests;
  for (int i = 0; i < flat.num_segments(); ++i) {
    const auto& segment = flat.layout().segments[static_cast<std::size_t>(i)];
    const auto add = [&](const at::Tensor& memory, const ByteRange& range) {
      digests.push_back(
          memory.is_cuda() ? digest_on_device(memory, range.begin, range.end)
                           : at::full({}, static_cast<std::int64_t>(digest_of_range(memory, range)),
                                      at::dtype(at::kLong)));
    };
    if (!flat.shards().is_sharded()) add(flat.gradients(i), window_of_gradients(flat, i, window_));
    add(flat.values(i), window_of(flat.values(i), segment.length, window_));
  }
  on_device_.emplace_back(digests);
  if (on_device_.size() <= kLag) return;
  const auto& oldest = on_device_.front();
  is_known_ = oldest.have_arrived();
  digest_ = 0;
  if (is_known_) {
    for (const auto found : oldest.values()) {
      digest_ = with_number(digest_, static_cast<std::uint64_t>(found));
    }
  }
  on_device_.pop_front();
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
                      "other settings{}; resume from a checkpoint",
                      parameters[i].name, group.global_rank(0), group.global_rank(rank),
                      flat.shards().is_sharded()
                          ? ", and call flat().share_values() after it has changed its own shards"
                          : ""));
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
