#include "cli/nearest.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

// The restricted Damerau-Levenshtein distance: no edit changes a pair that was swapped.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replace = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

// Names of the same options in torchrun and in common training scripts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kOtherNames{{
    {"--learning-rate", "--lr"},
    {"--learning_rate", "--lr"},
    {"--batch-size", "--batch"},
    {"--batch_size", "--batch"},
    {"--max-steps", "--steps"},
    {"--max_steps", "--steps"},
    {"--gradient-accumulation-steps", "--grad-accum"},
    {"--gradient_accumulation_steps", "--grad-accum"},
    {"--clip-grad", "--max-grad-norm"},
    {"--nproc-per-node", "--ranks"},
    {"--nproc_per_node", "--ranks"},
    {"--node_rank", "--node-rank"},
    {"--master-addr", "--rendezvous"},
    {"--rdzv-endpoint", "--rendezvous"},
}};

std::optional<std::string_view> find_other_name(std::string_view word,
                                                std::span<const std::string_view> candidates) {
  for (const auto& [other, ours] : kOtherNames) {
    if (word == other && std::ranges::find(candidates, ours) != candidates.end()) return ours;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> try_nearest(std::string_view word,
                                            std::span<const std::string_view> candidates) {
  std::optional<std::string_view> best;
  std::size_t fewest = 0;
  for (const auto candidate : candidates) {
    const auto distance = edits(word, candidate);
    const auto slip = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance > slip || (best && distance >= fewest)) continue;
    best = candidate;
    fewest = distance;
  }
  return best ? best : find_other_name(word, candidates);
}

}  // namespace lockstep::cli
