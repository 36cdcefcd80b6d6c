#include "lockstep/rendezvous/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace lockstep {
namespace {

std::string_view word(MemberKind kind) { return kind == MemberKind::rank ? "rank" : "node"; }

// "ranks 0-3, 5 and 7" for members of one kind.
std::string list_of_one_kind(std::span<const Member> members) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t end = i + 1;
    while (end < members.size() && members[end].number == members[end - 1].number + 1) ++end;
    runs.push_back(end == i + 1 ? fmt::format("{}", members[i].number)
                                : fmt::format("{}-{}", members[i].number, members[end - 1].number));
    i = end;
  }
  std::string text =
      fmt::format("{}{} ", word(members.front().kind), members.size() > 1 ? "s" : "");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

}  // namespace

std::string to_string(const Member& member) {
  return fmt::format("{} {}", word(member.kind), member.number);
}

std::string to_string(std::span<const Member> members) {
  if (members.empty()) return "none";
  const auto first_node = static_cast<std::size_t>(
      std::count_if(members.begin(), members.end(),
                    [](const Member& member) { return member.kind == MemberKind::rank; }));
  const auto ranks = members.first(first_node);
  const auto nodes = members.subspan(first_node);
  if (nodes.empty()) return list_of_one_kind(ranks);
  if (ranks.empty()) return list_of_one_kind(nodes);
  return fmt::format("{} and {}", list_of_one_kind(ranks), list_of_one_kind(nodes));
}

std::vector<Member> all_ranks(int size) {
  std::vector<Member> members;
  members.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) members.push_back({MemberKind::rank, rank});
  return members;
}

}  // namespace lockstep
