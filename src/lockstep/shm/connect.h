// The transport for ranks of one host: the ranks map the same memory, and copy and reduce data in
// place. docs/collectives.md describes the algorithms.
#pragma once

#include <cstddef>
#include <optional>

#include "lockstep/fabric/transport.h"

namespace lockstep {

struct ShmOptions {
  // The largest inline input, which is copied into shared memory with its call. At most 16 KiB;
  // equal on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // The largest inline input that is reduced one-shot: every rank reduces all of it. nullopt: the
  // threshold is measured when the group is created.
  std::optional<std::size_t> one_shot_bytes = {};
};

/// Returns the function that connects the members of a group through shared memory. All members
/// must be on one host.
[[nodiscard]] Connect connect_by_shm(const ShmOptions& options = {});

}  // namespace lockstep
