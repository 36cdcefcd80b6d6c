// Checks that the replicas stay equal. In each step every rank computes the digest of a window of
// its parameters and averaged gradients (of its parameters only, with shards). The digest travels
// in the call flags of the next step's gradients. The window moves with each step and has covered
// all memory after kWindows steps (moving_window.h), so a step costs 1/kWindows of a pass over it.
//
// On a GPU the device computes the digest, and the host does not wait for it: the digest travels
// kLag steps later. If the device is even further behind the host, that window is not compared.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/late_numbers.h"
#include "lockstep/flat/moving_window.h"

namespace lockstep {

/// The first rank of the group whose `digest` differs from that of rank 0; nullopt when all are
/// equal. The result is the same on every rank.
/// Collective: every rank calls this, in the same order, with the same `name`, which is for
/// messages.
/// Throws PeerError when a rank is lost.
[[nodiscard]] std::optional<int> find_differing_rank(const ProcessGroup& group,
                                                     std::uint64_t digest, std::string_view name);

class ReplicaCheck {
 public:
  static constexpr std::int64_t kWindows = kMovingWindows;
  static constexpr std::size_t kLag = 4;  // steps, on a GPU

  /// Computes the digest of the next window. Called after a reduction, before the optimizer. With
  /// one rank on a GPU there is nothing to compare, and nothing is computed.
  void look(const FlatParameters& flat, int num_ranks);
  /// Whether the last window was the first one of a round of kWindows.
  [[nodiscard]] bool begins_round() const noexcept { return window_ % kWindows == 1; }
  /// The digest of the last window, or of the one kLag before on a GPU; 0 before the first.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
  /// False if the device has not computed it yet.
  [[nodiscard]] bool is_known() const noexcept { return is_known_; }

  /// Throws PeerError that names the rank and the parameter that differ.
  /// Collective: every rank calls this after the reduced flags have shown a difference.
  [[noreturn]] void report(const FlatParameters& flat, const ProcessGroup& group) const;

 private:
  void look_on_device(const FlatParameters& flat);

  std::int64_t window_ = 0;
  std::uint64_t digest_ = 0;
  bool is_known_ = true;
  // The digests of the last kLag windows, by segment: of gradients, then of values.
  std::deque<LateNumbers> on_device_;
};

}  // namespace lockstep
