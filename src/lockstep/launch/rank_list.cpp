#include "lockstep/launch/rank_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(std::string_view text, int size) {
  throw UsageError(fmt::format(
      "\"{}\" is not a list of ranks from 0 to {}: write it as in 0-3,7, ranges in ascending order",
      text, size - 1));
}

// Parses the number at the start of `text` and removes its digits.
int parse_number(std::string_view& text, std::string_view whole, int size) {
  int number = -1;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0 || number >= size) refuse(whole, size);
  text.remove_prefix(static_cast<std::size_t>(stopped - text.data()));
  return number;
}

}  // namespace

std::string format_rank_list(std::span<const int> ranks) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  std::string result;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (!result.empty()) result += ',';
    result += fmt::format("{}", sorted[i]);
    if (last > i) result += fmt::format("{}{}", last == i + 1 ? ',' : '-', sorted[last]);
    i = last + 1;
  }
  return result;
}

std::vector<int> parse_rank_list(std::string_view text, int size) {
  std::vector<int> ranks;
  std::string_view rest = text;
  for (;;) {
    const int first = parse_number(rest, text, size);
    int last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      last = parse_number(rest, text, size);
    }
    if (last < first) refuse(text, size);
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    if (rest.empty()) break;
    if (rest.front() != ',') refuse(text, size);
    rest.remove_prefix(1);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace lockstep
