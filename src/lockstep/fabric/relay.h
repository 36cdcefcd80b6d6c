// How a message reaches all ranks of a large group without a connection between every two of them.
// Pure.
//
// Terms: the *partners* of a rank are the ranks at the distances 1, 2, 4, … from it in both
// directions of a ring over all ranks: at most 2 log2(N). A message of one rank, its *origin*, is
// relayed by the ranks that receive it: each rank receives it once, after at most log2(N)
// relays. A message that must arrive although ranks are lost is *flooded* instead: a rank that
// receives it for the first time sends it to all its partners.
#pragma once

#include <vector>

namespace lockstep {

/// The partners of `rank`, ascending. If a is a partner of b, b is one of a.
[[nodiscard]] std::vector<int> partners_of(int rank, int size);

/// The partners to which `rank` sends a message of `origin`, nearest first; if `rank` is the
/// origin, those to which it sends first.
[[nodiscard]] std::vector<int> next_relays(int origin, int rank, int size);

}  // namespace lockstep
