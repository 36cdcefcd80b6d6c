// The data of a call between hosts: what each rank sends, and how it is reduced.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace exchange {
namespace {

std::size_t piece_bytes(const Call& call) {
  return static_cast<std::size_t>(call.count) * bytes_of(call.dtype);
}

// Whether the input has one piece per rank.
bool has_piece_for_each(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::scatter ||
         kind == Collective::all_to_all;
}

// Whether only the input of the root is used.
bool has_root_input(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::scatter;
}

}  // namespace

std::span<const std::byte> input_for(const Call& call, int rank, int to) {
  const bool to_root = call.kind == Collective::gather || call.kind == Collective::reduce;
  if ((has_root_input(call.kind) && rank != call.root) || (to_root && to != call.root)) return {};
  return needed_of(call, call.input, to);
}

std::span<const std::byte> input_for_all(const Call& call, int rank, int /*to*/) {
  return has_root_input(call.kind) && rank != call.root ? std::span<const std::byte>() : call.input;
}

std::span<const std::byte> needed_of(const Call& call, std::span<const std::byte> input, int to) {
  if (!has_piece_for_each(call.kind)) return input;
  const auto piece = piece_bytes(call);
  const auto index = static_cast<std::size_t>(to);
  // Shorter input is that of a faulty rank: its receiver compares the length (input_of).
  if (piece == 0 || index >= input.size() / piece) return input;
  return input.subspan(index * piece, piece);
}

Part owned_by(const Call& call, int owner, int size) {
  const auto index = static_cast<std::size_t>(owner);
  if (has_owners(call.kind)) {
    return {0, static_cast<std::size_t>(call.owners->count_of(owner)) * bytes_of(call.dtype)};
  }
  if (call.kind == Collective::reduce_scatter) {
    return {index * piece_bytes(call), piece_bytes(call)};
  }
  constexpr std::size_t kLine = 64;  // a multiple of every element
  return part_of(piece_bytes(call), index, static_cast<std::size_t>(size), kLine);
}

bool returns_results(Collective kind) noexcept {
  return kind == Collective::all_reduce || kind == Collective::reduce;
}

bool keeps_results(const Call& call, int rank) noexcept {
  return call.kind == Collective::all_reduce || rank == call.root;
}

Part received_from(const Call& call, int from, int rank, int size) {
  const auto piece = piece_bytes(call);
  const auto index = static_cast<std::size_t>(from);
  (void)size;
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::split:
    case Collective::all_to_all:
      return {index * piece, piece};
    case Collective::gather:
      return rank == call.root ? Part{index * piece, piece} : Part{};
    case Collective::scatter:
      return from == call.root ? Part{0, piece} : Part{};
    case Collective::broadcast:
      return from == call.root && rank != call.root ? Part{0, piece} : Part{};
    default:
      return {};
  }
}

}  // namespace exchange

namespace {

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!from.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), from.size());
}

std::span<std::byte> part(std::span<std::byte> of, const Part& range) {
  return of.subspan(range.begin, range.length);
}

void reduce_bytes(const NetworkCall& call, std::span<const std::byte* const> sources,
                  std::byte* destination, std::size_t bytes) {
  reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources,
         std::span(&destination, 1), bytes / bytes_of(call.call.dtype));
}

}  // namespace

void NetworkCall::send_to(int to, std::uint32_t part, std::uint64_t offset,
                          std::span<const std::byte> bytes) {
  const auto index = static_cast<std::size_t>(to);
  queued[index] += bytes.size();
  // The receiver uses a block when it has arrived, and the network sends one as a whole.
  for (std::size_t first = 0; first < bytes.size(); first += block_bytes) {
    const auto block = bytes.subspan(first, std::min(block_bytes, bytes.size() - first));
    group->send(to, {number, part}, offset + first, block, sent[index]);
  }
}

std::span<const std::byte> NetworkCall::input_of(int from) const {
  const int own = group->rank();
  const auto input = group->input(from, number);
  auto wanted = input_bytes(call, from, group->size());
  if (!group->relays()) {
    if (call.kind == Collective::reduce || call.kind == Collective::gather) {
      wanted = own == call.root ? wanted : 0;
    }
    if (wanted > 0 && exchange::has_piece_for_each(call.kind)) {
      wanted = exchange::piece_bytes(call);
    }
  }
  if (input.size() != wanted) {
    throw PeerError(from, fmt::format("it sent {} bytes of input with a call that has {}",
                                      input.size(), wanted));
  }
  return group->relays() ? exchange::needed_of(call, input, own) : input;
}

void run_inline(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  const int size = call.group->size();
  const auto input_of = [&](int rank) {
    return rank == own ? exchange::input_for(made, own, own) : call.input_of(rank);
  };
  if (made.output.empty()) return;
  if (!reduces(made.kind)) {
    for (int from = 0; from < size; ++from) {
      const auto range = exchange::received_from(made, from, own, size);
      copy(part(made.output, range), input_of(from).first(range.length));
    }
    return;
  }
  std::vector<const std::byte*> sources;
  for (int from = 0; from < size; ++from) sources.push_back(input_of(from).data());
  reduce_bytes(call, sources, made.output.data(), made.output.size());
}

Recipe move_reduction(NetworkCall& call) {
  while (const auto awaited = call.reduction->advance()) co_await *awaited;
}

Recipe move_data(NetworkCall& call) {
  const auto& made = call.call;
  const int own = call.group->rank();
  const int size = call.group->size();
  const bool is_reduction = reduces(made.kind);
  for (int i = 1; i < size; ++i) {
    const int to = (own + i) % size;  // ranks begin with different ones
    const auto range = exchange::owned_by(made, to, size);
    call.send_to(to, 0, 0,
                 is_reduction ? made.input.subspan(range.begin, range.length)
                              : exchange::input_for(made, own, to));
  }
  if (!is_reduction && !made.output.empty()) {
    const auto range = exchange::received_from(made, own, own, size);
    copy(part(made.output, range), exchange::input_for(made, own, own).first(range.length));
  }
  const auto owned = is_reduction ? exchange::owned_by(made, own, size) : Part{};
  const bool returns = exchange::returns_results(made.kind);
  // A rank that does not keep its part of the result overwrites the input of a peer.
  auto* const result = !returns                             ? made.output.data()
                       : exchange::keeps_results(made, own) ? made.output.data() + owned.begin
                                                            : call.scratch_of((own + 1) % size);
  // A block is reduced and sent as soon as it has arrived, while the next ones are on their way.
  for (std::size_t begin = 0; begin < owned.length; begin += call.block_bytes) {
    const auto bytes = std::min(call.block_bytes, owned.length - begin);
    for (int from = 0; from < size; ++from) {
      if (from == own) continue;
      co_await call.reaches(call.arrived[static_cast<std::size_t>(from)], begin + bytes, from);
    }
    std::vector<const std::byte*> sources;
    for (int from = 0; from < size; ++from) {
      sources.push_back((from == own ? made.input.data() + owned.begin : call.scratch_of(from)) +
                        begin);
    }
    reduce_bytes(call, sources, result + begin, bytes);
    for (int i = 1; i < size && returns; ++i) {
      const int to = (own + i) % size;
      if (exchange::keeps_results(made, to)) call.send_to(to, 1, begin, {result + begin, bytes});
    }
  }
  for (int from = 0; from < size; ++from) {
    if (from == own) continue;
    const auto index = static_cast<std::size_t>(from);
    const auto data = exchange::received_from(made, from, own, size).length;
    co_await call.reaches(call.arrived[index], data, from, /*last=*/true);
    const bool keeps = returns && exchange::keeps_results(made, own);
    const auto results = keeps ? exchange::owned_by(made, from, size).length : 0;
    co_await call.reaches(call.results[index], results, from, /*last=*/true);
    co_await call.reaches(call.sent[index], call.queued[index], from, /*last=*/true);
  }
}

}  // namespace lockstep
