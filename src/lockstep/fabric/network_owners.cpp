// Calls whose elements have owners, between hosts. Each rank sends to each owner its elements, as
// one transfer without gaps, which the owner reduces block by block as they arrive. In the other
// direction each range is a transfer of its own: it is received at its destination.
#include <algorithm>
#include <cstring>

#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

Part bytes_of_range(const Call& call, const ElementRange& range) {
  const auto width = bytes_of(call.dtype);
  return {static_cast<std::size_t>(range.begin) * width,
          static_cast<std::size_t>(range.count) * width};
}

void reduce_bytes(const NetworkCall& call, std::span<const std::byte* const> sources,
                  std::byte* destination, std::size_t bytes) {
  reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources,
         std::span(&destination, 1), bytes / bytes_of(call.call.dtype));
}

// The transfers of a gather are numbered over all ranks; so are their words.
std::size_t num_ranges(const Owners& owners) {
  std::size_t count = 0;
  for (int rank = 0; rank < owners.num_ranks(); ++rank) count += owners.of(rank).size();
  return count;
}
std::size_t first_range_of(const Owners& owners, int owner) {
  std::size_t count = 0;
  for (int rank = 0; rank < owner; ++rank) count += owners.of(rank).size();
  return count;
}
std::uint32_t part_of_range(std::size_t index) {
  return kFirstTransferPart + static_cast<std::uint32_t>(index);
}

Recipe reduce_to_owners(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  const int size = call.group->size();
  for (int i = 1; i < size; ++i) {
    const int to = (own + i) % size;  // ranks begin with different ones
    std::size_t offset = 0;
    for (const auto& range : made.owners->of(to)) {
      const auto bytes = bytes_of_range(made, range);
      call.send_to(to, 0, offset, made.input.subspan(bytes.begin, bytes.length));
      offset += bytes.length;
    }
  }
  std::size_t before = 0;  // bytes of earlier ranges
  for (const auto& range : made.owners->of(own)) {
    const auto owned = bytes_of_range(made, range);
    for (std::size_t begin = 0; begin < owned.length; begin += call.block_bytes) {
      const auto bytes = std::min(call.block_bytes, owned.length - begin);
      for (int from = 0; from < size; ++from) {
        if (from == own) continue;
        const auto& arrived = call.arrived[static_cast<std::size_t>(from)];
        co_await call.reaches(arrived, before + begin + bytes, from);
      }
      std::vector<const std::byte*> sources;
      for (int from = 0; from < size; ++from) {
        sources.push_back(from == own ? made.input.data() + owned.begin + begin
                                      : call.scratch_of(from) + before + begin);
      }
      reduce_bytes(call, sources, made.output.data() + owned.begin + begin, bytes);
    }
    before += owned.length;
  }
  for (int to = 0; to < size; ++to) {
    const auto index = static_cast<std::size_t>(to);
    if (to != own) {
      co_await call.reaches(call.sent[index], call.queued[index], to, /*last=*/true);
    }
  }
}

Recipe gather_from_owners(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  const int size = call.group->size();
  for (int i = 1; i < size; ++i) {
    const int to = (own + i) % size;
    auto index = first_range_of(*made.owners, own);
    for (const auto& range : made.owners->of(own)) {
      const auto bytes = bytes_of_range(made, range);
      call.send_to(to, part_of_range(index++), 0, made.input.subspan(bytes.begin, bytes.length));
    }
  }
  for (int from = 0; from < size; ++from) {
    if (from == own) continue;
    auto index = first_range_of(*made.owners, from);
    for (const auto& range : made.owners->of(from)) {
      const auto bytes = bytes_of_range(made, range).length;
      co_await call.reaches(call.ranges[index++], bytes, from, /*last=*/true);
    }
    const auto peer = static_cast<std::size_t>(from);
    co_await call.reaches(call.sent[peer], call.queued[peer], from, /*last=*/true);
  }
}

}  // namespace

void expect_by_owners(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  call.transfers = true;
  if (reduces(made.kind)) {
    const auto bytes = exchange::owned_by(made, own, call.group->size()).length;
    call.scratch = call.group->borrow(bytes * static_cast<std::size_t>(call.group->size()));
    for (int from = 0; from < call.group->size(); ++from) {
      if (from == own) continue;
      call.group->expect(from, {call.number, 0}, {call.scratch_of(from), bytes},
                         call.arrived[static_cast<std::size_t>(from)]);
    }
    return;
  }
  call.ranges = std::vector<NetworkCall::Word>(num_ranges(*made.owners));
  std::size_t index = 0;
  for (int from = 0; from < call.group->size(); ++from) {
    for (const auto& range : made.owners->of(from)) {
      const auto bytes = bytes_of_range(made, range);
      if (from != own) {
        call.group->expect(from, {call.number, part_of_range(index)},
                           made.output.subspan(bytes.begin, bytes.length), call.ranges[index]);
      }
      ++index;
    }
  }
}

void run_inline_by_owners(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  const int size = call.group->size();
  const auto input_at = [&](int rank, std::size_t begin) {
    return (rank == own ? made.input : call.input_of(rank)).data() + begin;
  };
  if (reduces(made.kind)) {
    for (const auto& range : made.owners->of(own)) {
      const auto bytes = bytes_of_range(made, range);
      std::vector<const std::byte*> sources;
      for (int from = 0; from < size; ++from) sources.push_back(input_at(from, bytes.begin));
      reduce_bytes(call, sources, made.output.data() + bytes.begin, bytes.length);
    }
    return;
  }
  for (int from = 0; from < size; ++from) {
    if (from == own) continue;
    for (const auto& range : made.owners->of(from)) {
      const auto bytes = bytes_of_range(made, range);
      std::memcpy(made.output.data() + bytes.begin, input_at(from, bytes.begin), bytes.length);
    }
  }
}

Recipe move_by_owners(NetworkCall& call) {
  return reduces(call.call.kind) ? reduce_to_owners(call) : gather_from_owners(call);
}

}  // namespace lockstep
