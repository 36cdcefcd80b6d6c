// The members of a rendezvous: ranks of the job, and launchers of nodes.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

enum class MemberKind : std::uint8_t { rank, node };

/// Written "rank 3" or "node 1". Ordered, ranks first.
struct Member {
  MemberKind kind = MemberKind::rank;
  int number = 0;  // from 0 to kMaxMembers - 1

  friend auto operator<=>(const Member&, const Member&) = default;
};

constexpr int kMaxMembers = 65536;  // of each kind

[[nodiscard]] std::string to_string(const Member& member);

/// A list for a message: "ranks 0-3 and 7", "rank 2", "rank 0 and nodes 1-2"; "none" when empty.
/// `members` is in ascending order.
[[nodiscard]] std::string to_string(std::span<const Member> members);

/// Ranks 0 to `size` - 1.
[[nodiscard]] std::vector<Member> all_ranks(int size);

}  // namespace lockstep
