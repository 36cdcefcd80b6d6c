// Call flags: a few small values that travel with a collective, so that they need no separate
// round trip. The room that issues the call defines the meaning of each field and bit; the group
// only combines them.
#pragma once

#include <cstdint>

namespace lockstep {

/// The flags of one rank.
struct CallFlags {
  std::int64_t sum = 0;  // summed over the ranks
  std::uint64_t equal =
      0;                  // expected to be equal on all ranks; GroupFlags::all_equal is the result
  std::uint32_t any = 0;  // bits, combined with bitwise or
  bool absent = false;    // this rank takes part in the call but contributes no data

  friend bool operator==(const CallFlags&, const CallFlags&) = default;
};

/// The reduced flags of all ranks.
struct GroupFlags {
  std::int64_t sum = 0;
  bool all_equal = true;
  std::uint32_t any = 0;
  int num_absent = 0;
  int first_present = -1;  // the lowest rank that is not absent; -1 when all are absent

  /// Adds the flags of `rank`. Call it for each rank in ascending order; `first` are rank 0's
  /// flags.
  void add(int rank, const CallFlags& flags, const CallFlags& first) noexcept {
    sum += flags.sum;
    all_equal = all_equal && flags.equal == first.equal;
    any |= flags.any;
    num_absent += flags.absent ? 1 : 0;
    if (!flags.absent && first_present < 0) first_present = rank;
  }
};

}  // namespace lockstep
