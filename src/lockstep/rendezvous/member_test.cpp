#include "lockstep/rendezvous/member.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr auto kRank = MemberKind::rank;
constexpr auto kNode = MemberKind::node;

TEST(Member, IsWrittenAsKindAndNumber) {
  EXPECT_EQ(to_string(Member{kRank, 3}), "rank 3");
  EXPECT_EQ(to_string(Member{kNode, 0}), "node 0");
}

TEST(Member, ListsAreShort) {
  const auto text = [](std::vector<Member> members) { return to_string(members); };
  EXPECT_EQ(text({}), "none");
  EXPECT_EQ(text({{kRank, 2}}), "rank 2");
  EXPECT_EQ(text({{kRank, 0}, {kRank, 1}, {kRank, 2}}), "ranks 0-2");
  EXPECT_EQ(text({{kRank, 0}, {kRank, 1}, {kRank, 4}, {kRank, 7}}), "ranks 0-1, 4 and 7");
  EXPECT_EQ(text({{kRank, 0}, {kNode, 1}, {kNode, 2}}), "rank 0 and nodes 1-2");
  EXPECT_EQ(text({{kNode, 5}}), "node 5");
  EXPECT_EQ(to_string(all_ranks(4096)), "ranks 0-4095");
}

}  // namespace
}  // namespace lockstep
