#include "cli/bench/link/pair_rounds.h"

#include <algorithm>

namespace lockstep::cli {

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int num_ranks) {
  const int seats = num_ranks + num_ranks % 2;  // with an odd number, one rank pauses per round
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round < seats - 1; ++round) {
    auto& pairs = rounds.emplace_back();
    // The last seat is fixed; the others move on by one per round.
    const auto rank_at = [&](int seat) {
      return seat == seats - 1 ? seat : (seat + round) % (seats - 1);
    };
    for (int seat = 0; seat < seats / 2; ++seat) {
      const auto [first, second] = std::minmax({rank_at(seat), rank_at(seats - 1 - seat)});
      if (second < num_ranks) pairs.emplace_back(first, second);
    }
  }
  return rounds;
}

}  // namespace lockstep::cli
