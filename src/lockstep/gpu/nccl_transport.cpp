#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/gpu/gather_internal.h"
#include "lockstep/gpu/nccl_ratio_internal.h"
#include "lockstep/gpu/nccl_transport_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kAligned = 64;              // elements
constexpr std::size_t kLargestElement = 8;        // bytes
constexpr std::chrono::seconds kConnectTime{60};  // measured: 0.3 s
constexpr std::chrono::seconds kCloseTime{5};
// A rank that dies closes its connections before the kernel reports its end: an error of NCCL is
// reported after this time, so that the dead rank can be named instead.
constexpr std::chrono::milliseconds kNameTime{200};

std::size_t smallest_scratch(std::size_t num_ranks) {
  return num_ranks * kAligned * kLargestElement;
}

// Twice a buffer of the other transports: by default a bucket of Ddp is one piece.
std::size_t scratch_of(const DeviceTransportParts& parts) {
  return std::max(2 * parts.stage_bytes, smallest_scratch(static_cast<std::size_t>(parts.size())));
}

std::size_t remainder_bytes(std::size_t num_ranks) {
  return num_ranks * smallest_scratch(num_ranks);
}

// What the ranks tell each other before they connect.
struct Hello {
  NcclId id = {};  // of rank 0
  int version = 0;
  NcclReduction reduction = NcclReduction::exact;
  std::array<char, 256> error = {};  // empty: none
};

struct Outcome {
  std::array<char, 256> error = {};
};

template <std::size_t Size>
void set_text(std::array<char, Size>& to, const char* text) {
  std::strncpy(to.data(), text, Size - 1);
}

template <typename T>
void expect_no_error(const Group& group, const std::vector<T>& all) {
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* error = all[static_cast<std::size_t>(rank)].error.data();
    if (*error == '\0') continue;
    throw SystemError(fmt::format("rank {} cannot use NCCL: {}", group.global_rank(rank), error));
  }
}

void wait_until_connected(NcclComm& comm, const DeviceTransportParts& parts) {
  constexpr std::chrono::milliseconds kPause{1};
  const auto limit = Deadline::after(kConnectTime);
  while (!comm.ready()) {
    for (int rank = 0; rank < parts.size(); ++rank) {
      if (rank == parts.rank() || !parts.control->is_gone(rank)) continue;
      const int global = parts.peers[static_cast<std::size_t>(rank)].global_rank;
      throw PeerError(global, fmt::format("rank {} ({}) has ended while NCCL connects the ranks",
                                          global, parts.control->describe(rank)));
    }
    if (limit.expired()) {
      throw SystemError(
          fmt::format("NCCL has not connected the ranks within {} s; NCCL_DEBUG=INFO "
                      "prints what it waits for",
                      kConnectTime.count()));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

NcclPiece piece_at(std::size_t offset, std::size_t count, std::size_t num_ranks,
                   std::size_t largest) noexcept {
  const auto length = std::min(count - offset, largest);
  if (num_ranks == 1) return {offset, length, 0};
  const auto shard = length / num_ranks / kAligned * kAligned;
  return {offset, shard, length - shard * num_ranks};
}

std::optional<int> NcclTransport::Enqueued::lagging() const noexcept {
  try {
    return comm_.ready() ? std::nullopt : std::optional(rank_);
  } catch (const Error&) {
    return std::nullopt;
  }
}

NcclTransport::NcclTransport(const DeviceTransportParts& parts, std::unique_ptr<NcclComm> comm,
                             NcclReduction reduction, std::filesystem::path ratios)
    : parts_(parts),
      comm_(std::move(comm)),
      reduction_(reduction),
      ratios_(std::move(ratios)),
      memory_(parts, /*maps=*/false),
      enqueued_(*comm_, parts.rank()),
      scratch_bytes_(scratch_of(parts)) {
  const auto selected = parts_.context->scope();
  expect(parts_.context->functions().allocate(scratch_bytes_ + remainder_bytes(size()), scratch_),
         "scratch memory for NCCL");
  remainder_ = scratch_ + scratch_bytes_;
}

NcclTransport::~NcclTransport() {
  comm_.reset();  // aborts unless leave() has closed it: no kernel uses the memory then
  (void)parts_.context->functions().release(scratch_).ok();
}

Recipe NcclTransport::begin(DeviceCall& call) {
  last_call_.store(call.number, std::memory_order_relaxed);
  if (call.call.kind == Collective::reduce_to_owners) return reduce_to_owners(call);
  if (call.call.kind == Collective::gather_from_owners) return gather_from_owners(call);
  if (!reduces(call.call.kind)) return move(call);
  if (is_fast(call.call)) return reduce_fast(call);
  return call.call.kind == Collective::reduce_scatter ? reduce_scatter(call) : reduce_all(call);
}

bool NcclTransport::is_fast(const Call& call) const noexcept {
  return reduction_ == NcclReduction::fast && call.kind == Collective::all_reduce &&
         is_floating(call.dtype) && (call.op == ReduceOp::sum || divides(call.op));
}

std::size_t NcclTransport::largest_piece(const Call& call) const noexcept {
  const auto per_rank = scratch_bytes_ / bytes_of(call.dtype) / size();
  return std::max<std::size_t>(per_rank / kAligned, 1) * kAligned * size();
}

Recipe NcclTransport::move(DeviceCall& call) {
  const auto& own = call.call;
  const auto bytes = static_cast<std::size_t>(own.count) * bytes_of(own.dtype);
  auto* const input = const_cast<std::byte*>(own.input.data());
  auto* const output = own.output.data();
  const bool is_root = rank() == own.root;
  const auto own_part = static_cast<std::size_t>(rank()) * bytes;
  const auto copy_own = [&](std::byte* to, const std::byte* from) {
    if (to == from) return;
    expect(parts_.context->functions().copy(to, from, bytes, stream()), "a copy");
  };
  // To or from all other ranks, at the root.
  const auto with_others = [&](NcclFunctions& nccl, const auto& transfer) {
    DeviceStatus status;
    for (int other = 0; other < parts_.size() && status.ok(); ++other) {
      if (other != rank()) status = transfer(nccl, other, static_cast<std::size_t>(other) * bytes);
    }
    return status;
  };
  if (own.kind == Collective::gather && is_root && bytes > 0) copy_own(output + own_part, input);
  if (own.kind == Collective::scatter && is_root && bytes > 0) copy_own(output, input + own_part);
  const bool moves = bytes > 0 || own.kind == Collective::barrier;
  if (moves) {
    comm_->enqueue([&](NcclFunctions& nccl, void* comm) -> DeviceStatus {
      switch (own.kind) {
        case Collective::all_gather:
          return nccl.all_gather(output, input, bytes, comm, stream());
        case Collective::all_to_all:
          return nccl.all_to_all(output, input, bytes, comm, stream());
        case Collective::broadcast:
          return nccl.broadcast(is_root ? input : output, bytes, own.root, comm, stream());
        case Collective::gather:
          if (!is_root) return nccl.send(input, bytes, own.root, comm, stream());
          return with_others(nccl, [&](auto& f, int other, std::size_t at) {
            return f.receive(output + at, bytes, other, comm, stream());
          });
        case Collective::scatter:
          if (!is_root) return nccl.receive(output, bytes, own.root, comm, stream());
          return with_others(nccl, [&](auto& f, int other, std::size_t at) {
            return f.send(input + at, bytes, other, comm, stream());
          });
        default:  // barrier: every device waits for all
          return nccl.all_gather(scratch_, scratch_ + rank(), 1, comm, stream());
      }
    });
    co_await enqueued();
  }
  end(call);
}

Recipe NcclTransport::reduce_all(DeviceCall& call) {
  const auto count = static_cast<std::size_t>(call.call.count);
  const auto largest = largest_piece(call.call);
  for (std::size_t offset = 0; offset < count; offset += largest) {
    const auto piece = piece_at(offset, count, size(), largest);
    if (size() > 1) {  // otherwise there is nothing to send
      exchange_shards(call, piece);
      co_await enqueued();
    }
    reduce_own_shard(call, piece);
    if (piece.shard == 0) continue;
    collect_shards(call, piece);
    co_await enqueued();
  }
  end(call);
}

void NcclTransport::end(const DeviceCall& call) {
  (void)comm_->ready();  // throws if NCCL has failed to enqueue the last call
  const auto selected = parts_.context->scope();  // a recipe may resume on another thread
  call.result->record(stream());
}

void NcclTransport::exchange_shards(const DeviceCall& call, const NcclPiece& piece) {
  const auto element = bytes_of(call.call.dtype);
  const auto* const input = call.call.input.data() + piece.offset * element;
  const auto* const rest = input + piece.shard * size() * element;
  const auto bytes = piece.shard * element;
  comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
    auto status = swap_shards(nccl, comm, input, bytes, bytes);
    if (status.ok() && piece.remainder > 0) {
      status = nccl.all_gather(remainder_, rest, piece.remainder * element, comm, stream());
    }
    return status;
  });
}

// The own shard stays where it is, and costs no copy.
DeviceStatus NcclTransport::swap_shards(NcclFunctions& nccl, void* comm, const std::byte* input,
                                        std::size_t stride, std::size_t bytes) {
  DeviceStatus status;
  for (int other = 0; bytes > 0 && other < parts_.size() && status.ok(); ++other) {
    if (other == rank()) continue;
    const auto at = static_cast<std::size_t>(other);
    status = nccl.send(input + at * stride, bytes, other, comm, stream());
    if (status.ok()) status = nccl.receive(scratch_ + at * bytes, bytes, other, comm, stream());
  }
  return status;
}

void NcclTransport::reduce_own_shard(const DeviceCall& call, const NcclPiece& piece) {
  const auto element = bytes_of(call.call.dtype);
  const auto* const input = call.call.input.data() + piece.offset * element;
  const bool has_output = call.call.kind == Collective::all_reduce || rank() == call.call.root;
  auto* const output = has_output ? call.call.output.data() + piece.offset * element : nullptr;
  const auto own = static_cast<std::size_t>(rank()) * piece.shard * element;
  if (piece.shard > 0) {
    reduce_scratch(call, scratch_, piece.shard, input + own,
                   has_output ? output + own : scratch_ + own);
  }
  if (piece.remainder > 0 && has_output) {
    const auto rest = piece.shard * size() * element;
    reduce_scratch(call, remainder_, piece.remainder, input + rest, output + rest);
  }
}

void NcclTransport::collect_shards(const DeviceCall& call, const NcclPiece& piece) {
  const auto element = bytes_of(call.call.dtype);
  const auto bytes = piece.shard * element;
  const auto own = static_cast<std::size_t>(rank()) * bytes;
  const bool to_all = call.call.kind == Collective::all_reduce;
  const bool is_root = rank() == call.call.root;
  auto* const output =
      to_all || is_root ? call.call.output.data() + piece.offset * element : nullptr;
  comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
    if (to_all) return nccl.all_gather(output, output + own, bytes, comm, stream());
    if (!is_root) return nccl.send(scratch_ + own, bytes, call.call.root, comm, stream());
    DeviceStatus status;
    for (int other = 0; other < parts_.size() && status.ok(); ++other) {
      if (other == rank()) continue;
      status = nccl.receive(output + static_cast<std::size_t>(other) * bytes, bytes, other, comm,
                            stream());
    }
    return status;
  });
}

Recipe NcclTransport::reduce_scatter(DeviceCall& call) {
  const auto& own = call.call;
  const auto element = bytes_of(own.dtype);
  const auto count = static_cast<std::size_t>(own.count);
  const auto largest = largest_piece(own) / size();
  for (std::size_t offset = 0; offset < count; offset += largest) {
    const auto length = std::min(largest, count - offset);
    const auto bytes = length * element;
    const auto* const input = own.input.data() + offset * element;
    comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
      return swap_shards(nccl, comm, input, count * element, bytes);
    });
    co_await enqueued();
    reduce_scratch(call, scratch_, length,
                   input + static_cast<std::size_t>(rank()) * count * element,
                   own.output.data() + offset * element);
  }
  end(call);
}

Recipe NcclTransport::reduce_fast(DeviceCall& call) {
  const auto& own = call.call;
  const auto count = static_cast<std::size_t>(own.count);
  if (count > 0) {
    const auto op = own.op == ReduceOp::average ? ReduceOp::average : ReduceOp::sum;
    comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
      return nccl.all_reduce(own.output.data(), own.input.data(), count, own.dtype, op, comm,
                             stream());
    });
    co_await enqueued();
    if (own.op == ReduceOp::weighted_average) {
      // The sum as the only contribution: the kernel divides it.
      const auto* const sum = own.output.data();
      auto* const output = own.output.data();
      const auto selected = parts_.context->scope();
      expect(parts_.context->functions().reduce({own.dtype, own.op, call.weight},
                                                TreePlan::over_ranks(1), {&sum, 1}, {&output, 1},
                                                count, stream()),
             "a division");
    }
  }
  end(call);
}

void NcclTransport::reduce_scratch(const DeviceCall& call, const std::byte* scratch,
                                   std::size_t count, const std::byte* own, std::byte* to) {
  std::vector<const std::byte*> sources;
  for (std::size_t other = 0; other < size(); ++other) {
    sources.push_back(scratch + other * count * bytes_of(call.call.dtype));
  }
  sources[static_cast<std::size_t>(rank())] = own;
  const auto selected = parts_.context->scope();
  expect(parts_.context->functions().reduce({call.call.dtype, call.call.op, call.weight},
                                            call.tree(), sources, {&to, 1}, count, stream()),
         "a reduction");
}

std::shared_ptr<RegisteredMemory> NcclTransport::allocate(Group& group, std::size_t bytes) {
  return memory_.allocate(group, bytes);
}

void NcclTransport::tune(Group& group) {
  if (ratios_.empty() || group.size() == 1) return;
  const auto chosen = reduction_;
  tune_nccl_ratios(group, parts_, ratios_,
                   {.select = [&](NcclReduction next) { reduction_ = next; },
                    .allocate = [&](std::size_t bytes) { return allocate(group, bytes); }});
  reduction_ = chosen;
}

void NcclTransport::leave(Deadline deadline, const Watch& watch) noexcept {
  (void)comm_->close(std::min(deadline, Deadline::after(kCloseTime)), watch);
}

int NcclTransport::lagging() const noexcept {
  // All ranks must have enqueued a call before a device can end it.
  const Condition enqueued{Condition::Of::completed, last_call_.load(std::memory_order_relaxed)};
  for (int other = 0; other < parts_.size(); ++other) {
    if (other != rank() && parts_.control->counters().lags(other, enqueued)) return other;
  }
  return rank();
}

std::optional<Cause> NcclTransport::find_error() noexcept {
  const auto error = comm_->find_error();
  if (!error) return std::nullopt;
  const auto now = Deadline::Clock::now();
  if (!error_since_) error_since_ = now;
  if (now - *error_since_ < kNameTime) return std::nullopt;
  return Cause{lagging(), "NCCL reports an error: " + *error};
}

void NcclTransport::release_waits() noexcept { comm_->abort(); }

std::unique_ptr<DeviceTransport> make_nccl_transport(Group& group,
                                                     const DeviceTransportParts& parts,
                                                     const std::shared_ptr<NcclFunctions>& nccl,
                                                     NcclReduction reduction,
                                                     const std::filesystem::path& ratios) {
  Hello own{.reduction = reduction};
  try {
    const auto& address = parts.membership.addresses.front();
    bind_nccl_to(address.empty() ? "lo" : interface_of(address));
    expect(nccl->version(own.version), "the version of NCCL");
    if (parts.rank() == 0) own.id = make_nccl_id(*nccl);
  } catch (const Error& error) {
    set_text(own.error, error.what());
  }
  const auto all = gather(group, own, "NCCL");
  expect_no_error(group, all);
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto& other = all[static_cast<std::size_t>(rank)];
    if (other.version == all[0].version && other.reduction == all[0].reduction) continue;
    throw UsageError(fmt::format(
        "the ranks use NCCL differently: rank {} has version {} and {} reductions, rank {} has "
        "version {} and {}; all ranks need the same",
        group.global_rank(0), all[0].version, to_string(all[0].reduction), group.global_rank(rank),
        other.version, to_string(other.reduction)));
  }
  std::unique_ptr<NcclTransport> transport;
  Outcome outcome;
  try {
    auto comm = std::make_unique<NcclComm>(nccl, all[0].id, NcclRank{parts.size(), parts.rank()});
    wait_until_connected(*comm, parts);
    transport = std::make_unique<NcclTransport>(parts, std::move(comm), reduction, ratios);
  } catch (const SystemError& error) {
    set_text(outcome.error, error.what());
  }
  expect_no_error(group, gather(group, outcome, "NCCL is connected"));
  return transport;
}

}  // namespace lockstep
