// FlatParameters: compares the ranks' models.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::string text_of(const std::vector<ParameterFacts>& facts) {
  std::string text;
  for (const auto& each : facts) text += to_string(each) + "\n";
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

// Compares the digest of all names and shapes, which travels in a barrier's call flags. The texts
// are gathered only when digests differ.
void FlatParameters::compare_with_peers(const std::vector<ParameterFacts>& facts) const {
  const auto text = text_of(facts);
  const auto own = digest(std::as_bytes(std::span(text)));
  auto work = group_.barrier({.name = "same model", .flags = CallFlags{.equal = own}});
  work.wait();
  if (work.flags().all_equal) return;
  const auto texts = gather_values(group_, text, {.name = "parameter lists"});
  const auto first = lines_of(texts.front());
  for (int rank = 1; rank < group_.size(); ++rank) {
    const auto other = lines_of(texts[static_cast<std::size_t>(rank)]);
    for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const auto here = i < first.size() ? first[i] : "nothing";
      const auto there = i < other.size() ? other[i] : "nothing";
      if (here == there) continue;
      throw PeerError(
          group_.global_rank(rank),
          fmt::format("the models differ between ranks: parameter {} is \"{}\" on rank {} and "
                      "\"{}\" on rank {}; every rank must construct the same model",
                      i, here, group_.global_rank(0), there, group_.global_rank(rank)));
    }
  }
}

}  // namespace lockstep
