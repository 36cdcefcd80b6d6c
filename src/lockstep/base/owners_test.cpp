#include "lockstep/base/owners.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<ElementRange> ranges_of(const Owners& owners, int rank) {
  const auto ranges = owners.of(rank);
  return {ranges.begin(), ranges.end()};
}

TEST(Owners, PiecesFollowEachOtherAndNeighborsOfOneOwnerAreOne) {
  const Owners owners(3, std::vector<OwnedPiece>{{0, 4}, {2, 0}, {0, 3}, {1, 5}, {0, 2}});
  EXPECT_EQ(owners.count(), 14);
  EXPECT_EQ(owners.num_ranks(), 3);
  EXPECT_EQ(ranges_of(owners, 0), (std::vector<ElementRange>{{0, 7}, {12, 2}}));
  EXPECT_EQ(ranges_of(owners, 1), (std::vector<ElementRange>{{7, 5}}));
  EXPECT_TRUE(owners.of(2).empty());
  EXPECT_EQ(owners.count_of(0), 9);
  EXPECT_EQ(owners.count_of(1), 5);
  EXPECT_EQ(owners.count_of(2), 0);
}

TEST(Owners, DigestsAreEqualForEqualOwnersOnly) {
  const Owners owners(2, std::vector<OwnedPiece>{{0, 4}, {1, 4}});
  EXPECT_EQ(owners.digest(), Owners(2, std::vector<OwnedPiece>{{0, 1}, {0, 3}, {1, 4}}).digest());
  EXPECT_NE(owners.digest(), Owners(3, std::vector<OwnedPiece>{{0, 4}, {1, 4}}).digest());
  EXPECT_NE(owners.digest(), Owners(2, std::vector<OwnedPiece>{{1, 4}, {0, 4}}).digest());
  EXPECT_NE(owners.digest(), Owners(2, std::vector<OwnedPiece>{{0, 3}, {1, 5}}).digest());
  EXPECT_NE(Owners(1, {}).digest(), 0U);
}

TEST(Owners, RefusesInvalidPieces) {
  EXPECT_THROW(Owners(0, {}), UsageError);
  EXPECT_THROW(Owners(2, std::vector<OwnedPiece>{{0, -1}}), UsageError);
  EXPECT_THROW(Owners(2, std::vector<OwnedPiece>{{2, 1}}), UsageError);
  EXPECT_THROW(Owners(2, std::vector<OwnedPiece>{{-1, 1}}), UsageError);
}

}  // namespace
}  // namespace lockstep
