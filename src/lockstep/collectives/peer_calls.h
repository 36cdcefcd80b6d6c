// What the other ranks of a group do, for a rank that takes part in their calls without data of its
// own: it reads from the control plane which call another rank has entered, and makes the same call
// with a neutral contribution, which changes no result.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/collectives/process_group.h"

namespace lockstep {

struct CallRecord;  // fabric/control_plane.h

/// A call that another rank has entered and this rank has not.
class PeerCall {
 public:
  /// The name that the other rank has given it.
  [[nodiscard]] std::string_view name() const noexcept;
  /// "all_reduce(sum, 1024 × float32, \"loss\")".
  [[nodiscard]] std::string text() const;

 private:
  friend class PeerCalls;
  std::shared_ptr<const CallRecord> record_;
};

class PeerCalls {
 public:
  explicit PeerCalls(const ProcessGroup& group) : group_(group) {}

  /// The next call of this rank, as `rank` has entered it; nullopt if that rank is not ahead.
  /// Throws PeerError.
  [[nodiscard]] std::optional<PeerCall> next_of(int rank) const;
  /// The number of calls of the group that `rank` has entered.
  [[nodiscard]] std::uint64_t num_entered(int rank) const;
  [[nodiscard]] std::chrono::milliseconds timeout() const;
  /// Advances the calls of this rank, without waiting. Throws PeerError.
  void advance() const;

  /// Makes `call` with a neutral contribution: 0 in a sum, 1 in a product, the largest value in a
  /// minimum, the smallest in a maximum, weight 0 in a weighted average. A tensor on a GPU is made
  /// on `device`.
  /// Throws UsageError that names the call if it has no neutral contribution: a plain average, a
  /// broadcast or scatter from this rank, all_gather, gather, gather_from_owners, all_to_all,
  /// allocate, split, reductions with leaves stated, and reduce_to_owners with owners that this
  /// rank has not passed to a call of the group. PeerError.
  [[nodiscard]] Work answer(const PeerCall& call, at::Device device) const;

  /// Makes `call` with zeros and these `flags`, for a rank that has failed and whose flags say so:
  /// no rank uses the result. `flags.equal` is that of the other rank.
  /// Throws UsageError for allocate and split, for a reduction with leaves stated, and for owners
  /// that this rank does not know. PeerError.
  [[nodiscard]] Work answer_as_failed(const PeerCall& call, at::Device device,
                                      const CallFlags& flags) const;

 private:
  ProcessGroup group_;
};

}  // namespace lockstep
