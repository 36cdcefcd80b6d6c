// One plain TCP connection between the two ranks of a benchmark, without anything of lockstep.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Connects ranks 0 and 1, at a port that hosts_benchmark leaves free.
[[nodiscard]] FileDescriptor connect_plainly(const World& world);

/// Bytes that move both ways at the same time.
struct PlainExchange {
  std::span<const std::byte> out;
  std::span<std::byte> in;

  [[nodiscard]] bool is_done() const noexcept { return out.empty() && in.empty(); }
};

/// Sends and receives what is possible without a wait, at most `most` bytes each way per call of
/// the kernel. Returns when nothing is.
void move_some(int socket, PlainExchange& exchange, std::size_t most);
/// Waits until something is possible.
void wait_to_move(int socket, const PlainExchange& exchange);

}  // namespace lockstep
