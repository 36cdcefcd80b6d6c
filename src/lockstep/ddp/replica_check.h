// Are the replicas still equal? Each step every rank digests a window of its parameters and reduced
// gradients, which moves on and has seen everything after kWindows steps; the digest rides with the
// next step's gradients. What it costs is a share of one pass over memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

/// The first rank of the group whose `digest` is not that of rank 0; none when all are equal.
/// Collective: every rank calls this, in the same order, with the same `name`, which is for
/// messages. Every rank gets the same answer. Throws PeerError when a rank is lost.
[[nodiscard]] std::optional<int> find_differing_rank(const ProcessGroup& group,
                                                     std::uint64_t digest, std::string_view name);

class ReplicaCheck {
 public:
  static constexpr std::int64_t kWindows = 64;
  static constexpr std::int64_t kLeastBytes = 16 << 10;  // of a window

  /// Digests the next window, between the end of a reduction and the optimizer.
  void look(const FlatParameters& flat);
  /// Whether the last window was the first of a round of kWindows.
  [[nodiscard]] bool begins_round() const noexcept { return window_ % kWindows == 1; }
  /// Of the last window; 0 before the first.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

  /// Says which rank and parameter differ: throws PeerError. Collective: all ranks have heard that
  /// the digests differ.
  [[noreturn]] void report(const FlatParameters& flat, const ProcessGroup& group) const;

 private:
  std::int64_t window_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace lockstep
