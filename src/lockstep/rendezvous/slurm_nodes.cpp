#include "lockstep/rendezvous/slurm_nodes.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(std::string_view list, const std::string& why) {
  throw UsageError(fmt::format("SLURM's list \"{}\" is invalid: {}", list, why));
}

std::optional<int> try_number(std::string_view digits) {
  int number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, number);
  if (digits.empty() || error != std::errc{} || stopped != end || digits.front() == '-') {
    return std::nullopt;
  }
  return number;
}

// Splits `text` at the commas outside of brackets.
std::vector<std::string_view> items_of(std::string_view list, std::string_view text) {
  std::vector<std::string_view> items;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '[' || text[i] == ']')) {
      if ((text[i] == '[') == inside) fail(list, "its brackets do not match");
      inside = !inside;
    }
    if (i < text.size() && (text[i] != ',' || inside)) continue;
    if (i == begin) fail(list, "it has an empty item");
    items.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  if (inside) fail(list, "its brackets do not match");
  return items;
}

// "08-10" as 08, 09, 10; "7" as 7.
std::vector<std::string> numbers_of(std::string_view list, std::string_view range) {
  const auto dash = range.find('-');
  const auto first_digits = range.substr(0, dash);
  const auto last_digits = dash == std::string_view::npos ? first_digits : range.substr(dash + 1);
  const auto first = try_number(first_digits);
  const auto last = try_number(last_digits);
  if (!first || !last || *first > *last) fail(list, fmt::format("\"{}\" is not a range", range));
  if (static_cast<std::size_t>(*last - *first) >= kMaxSlurmNodes) {
    fail(list, fmt::format("it names more than {} nodes", kMaxSlurmNodes));
  }
  std::vector<std::string> numbers;
  for (int number = *first; number <= *last; ++number) {
    numbers.push_back(fmt::format("{:0{}}", number, first_digits.size()));
  }
  return numbers;
}

// Every combination of one of `names` followed by one of the bracket's numbers.
std::vector<std::string> times(std::string_view list, const std::vector<std::string>& names,
                               std::string_view bracket) {
  std::vector<std::string> numbers;
  for (const auto range : items_of(list, bracket)) {
    for (auto& number : numbers_of(list, range)) numbers.push_back(std::move(number));
    if (numbers.size() * names.size() > kMaxSlurmNodes) {
      fail(list, fmt::format("it names more than {} nodes", kMaxSlurmNodes));
    }
  }
  std::vector<std::string> result;
  for (const auto& name : names) {
    for (const auto& number : numbers) result.push_back(name + number);
  }
  return result;
}

std::vector<std::string> names_of(std::string_view list, std::string_view item) {
  std::vector<std::string> names{""};
  while (!item.empty()) {
    const auto open = item.find('[');
    for (auto& name : names) name += item.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = item.find(']', open);
    names = times(list, names, item.substr(open + 1, close - open - 1));
    item = item.substr(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_slurm_nodes(std::string_view list) {
  std::vector<std::string> nodes;
  for (const auto item : items_of(list, list)) {
    for (auto& name : names_of(list, item)) nodes.push_back(std::move(name));
    if (nodes.size() > kMaxSlurmNodes) {
      fail(list, fmt::format("it names more than {} nodes", kMaxSlurmNodes));
    }
  }
  return nodes;
}

std::vector<int> expand_slurm_counts(std::string_view list) {
  std::vector<int> counts;
  for (const auto item : items_of(list, list)) {
    const auto open = item.find("(x");
    const auto count = try_number(item.substr(0, open));
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = item.back() == ')' ? try_number(item.substr(open + 2, item.size() - open - 3))
                                 : std::nullopt;
    }
    if (!count || !times || *times < 1) fail(list, fmt::format("\"{}\" is not a count", item));
    if (counts.size() + static_cast<std::size_t>(*times) > kMaxSlurmNodes) {
      fail(list, fmt::format("it has counts for more than {} nodes", kMaxSlurmNodes));
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

}  // namespace lockstep
