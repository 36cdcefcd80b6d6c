// The engine for ranks of one host: they share memory, and move and sum data where it lies.
// docs/collectives.md tells how.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/fabric/engine.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

struct EngineOptions {
  std::string name = "world";                      // of the group, in messages
  std::chrono::milliseconds timeout{600'000};      // a rank may be evaluating
  std::chrono::milliseconds stall_report{10'000};  // a wait that takes longer is reported once
  // Largest input that travels with its call, at most 16 KiB; the same on all ranks.
  std::size_t inline_bytes = 16U << 10;
  // Largest of those that every rank joins by itself; none: measured when the group is made.
  std::optional<std::size_t> one_shot_bytes = {};
};

/// The engine of all ranks of `world`.
/// Collective: every rank of the world calls this, in the same order as its other groups. Returns
/// when all have come. Throws UsageError when the ranks are on several hosts, naming them;
/// PeerError when a rank is lost or late.
[[nodiscard]] std::shared_ptr<Engine> make_shm_engine(const World& world,
                                                      const EngineOptions& options = {});

}  // namespace lockstep
