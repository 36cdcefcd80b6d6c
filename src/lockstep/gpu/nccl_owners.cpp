// Calls with owners over NCCL: sends and receives of the ranges, grouped.
#include <vector>

#include "lockstep/gpu/nccl_transport_internal.h"

namespace lockstep {

Recipe NcclTransport::reduce_to_owners(DeviceCall& call) {
  const OwnedRounds rounds(call.call, scratch_bytes_);
  for (std::size_t round = 0; round < rounds.count(); ++round) {
    // With several ranks, each has something to send or to receive: one of them owns elements.
    if (parts_.size() > 1) {
      comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
        return swap_owned(nccl, comm, call, rounds, round);
      });
      co_await enqueued();
    }
    reduce_owned(call, rounds, round);
  }
  end(call);
}

DeviceStatus NcclTransport::swap_owned(NcclFunctions& nccl, void* comm, const DeviceCall& call,
                                       const OwnedRounds& rounds, std::size_t round) {
  DeviceStatus status;
  const auto own = rounds.of(rank(), round);
  for (int other = 0; other < parts_.size(); ++other) {
    if (other == rank()) continue;
    for (const auto& part : rounds.of(other, round)) {
      if (!status.ok()) return status;
      status = nccl.send(call.call.input.data() + part.at, part.bytes, other, comm, stream());
    }
    auto* const scratch = scratch_ + static_cast<std::size_t>(other) * rounds.length();
    for (const auto& part : own) {
      if (!status.ok()) return status;
      status = nccl.receive(scratch + part.position, part.bytes, other, comm, stream());
    }
  }
  return status;
}

// This rank's own contribution stays where it is.
void NcclTransport::reduce_owned(const DeviceCall& call, const OwnedRounds& rounds,
                                 std::size_t round) {
  const auto selected = parts_.context->scope();  // a recipe may resume on another thread
  for (const auto& part : rounds.of(rank(), round)) {
    std::vector<const std::byte*> sources;
    for (std::size_t other = 0; other < size(); ++other) {
      sources.push_back(scratch_ + other * rounds.length() + part.position);
    }
    auto* const own = call.call.output.data() + part.at;
    sources[static_cast<std::size_t>(rank())] = own;
    expect(parts_.context->functions().reduce({call.call.dtype, call.call.op, call.weight},
                                              call.tree(), sources, {&own, 1},
                                              part.bytes / bytes_of(call.call.dtype), stream()),
           "a reduction");
  }
}

Recipe NcclTransport::gather_from_owners(DeviceCall& call) {
  const OwnedRounds whole(call.call, std::nullopt);
  if (whole.count() > 0 && parts_.size() > 1) {
    comm_->enqueue([&](NcclFunctions& nccl, void* comm) {
      DeviceStatus status;
      const auto own = whole.of(rank(), 0);
      auto* const memory = call.call.output.data();
      for (int other = 0; other < parts_.size(); ++other) {
        if (other == rank()) continue;
        for (const auto& part : own) {
          if (!status.ok()) return status;
          status = nccl.send(memory + part.at, part.bytes, other, comm, stream());
        }
        for (const auto& part : whole.of(other, 0)) {
          if (!status.ok()) return status;
          status = nccl.receive(memory + part.at, part.bytes, other, comm, stream());
        }
      }
      return status;
    });
    co_await enqueued();
  }
  end(call);
}

}  // namespace lockstep
