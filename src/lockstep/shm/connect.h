// The transport for ranks of one host: they share memory, and move and reduce data where it lies.
// docs/collectives.md describes the algorithms.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/fabric/transport.h"

namespace lockstep {

struct ShmOptions {
  // Largest input that travels with its call, at most 16 KiB; the same on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // Largest of those that every rank reduces by itself; none: measured when the group is made.
  std::optional<std::size_t> one_shot_bytes = {};
};

/// Planes over memory that the members share. All of them must be on one host.
[[nodiscard]] Connect connect_by_shm(const ShmOptions& options = {});

}  // namespace lockstep
