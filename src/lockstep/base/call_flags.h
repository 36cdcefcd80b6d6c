// Small facts that travel with a collective, so that they need no round trip of their own. The room
// that makes the call gives each field and bit its meaning; what carries the call only combines
// them.
#pragma once

#include <cstdint>

namespace lockstep {

/// What one rank says.
struct CallFlags {
  std::int64_t sum = 0;     // added over the ranks
  std::uint64_t equal = 0;  // must be equal on all ranks; GroupFlags says whether it is
  std::uint32_t any = 0;    // bits; each is set where any rank has set it
  bool absent = false;      // this rank takes part, but has nothing to contribute

  friend bool operator==(const CallFlags&, const CallFlags&) = default;
};

/// What all ranks said.
struct GroupFlags {
  std::int64_t sum = 0;
  bool all_equal = true;
  std::uint32_t any = 0;
  int num_absent = 0;
  int first_present = -1;  // the lowest rank that is not absent; -1: none

  /// Adds what `rank` said; called for each rank in order. `first` is what rank 0 said.
  void add(int rank, const CallFlags& flags, const CallFlags& first) noexcept {
    sum += flags.sum;
    all_equal = all_equal && flags.equal == first.equal;
    any |= flags.any;
    num_absent += flags.absent ? 1 : 0;
    if (!flags.absent && first_present < 0) first_present = rank;
  }
};

}  // namespace lockstep
