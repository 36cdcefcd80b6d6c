#include "lockstep/kernels/squares.h"

#include <algorithm>
#include <vector>

namespace lockstep {

double total_of_cells(std::span<const double> cells) {
  const auto lanes = [](std::span<const double> sums) {
    return dispatch<TotalLoops>(best_instruction_set(),
                                [&](auto loops) { return loops.lanes(sums); });
  };
  if (cells.size() <= kTotalRun) return lanes(cells);
  std::vector<double> runs;
  for (std::size_t at = 0; at < cells.size(); at += kTotalRun) {
    runs.push_back(lanes(cells.subspan(at, std::min(kTotalRun, cells.size() - at))));
  }
  return lanes(runs);
}

}  // namespace lockstep
