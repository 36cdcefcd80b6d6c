#include "lockstep/fabric/relay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

namespace lockstep {
namespace {

const std::vector<int> kSizes{1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 64, 65, 100, 127, 128, 1000};

int num_levels(int size) { return std::bit_width(static_cast<unsigned>(size - 1)); }

TEST(Relay, PartnersArePartnersOfEachOtherAndFew) {
  for (const int size : kSizes) {
    for (int rank = 0; rank < size; ++rank) {
      const auto partners = partners_of(rank, size);
      EXPECT_LE(static_cast<int>(partners.size()), 2 * num_levels(size)) << rank << " of " << size;
      EXPECT_EQ(std::count(partners.begin(), partners.end(), rank), 0);
      for (const int partner : partners) {
        const auto theirs = partners_of(partner, size);
        EXPECT_EQ(std::count(theirs.begin(), theirs.end(), rank), 1);
      }
    }
  }
}

TEST(Relay, EachRankReceivesAMessageOnceFromAPartnerAfterFewRelays) {
  for (const int size : kSizes) {
    for (const int origin : {0, size / 3, size - 1}) {
      std::map<int, int> relays{{origin, 0}};  // by rank that has the message
      std::vector<int> senders{origin};
      for (std::size_t i = 0; i < senders.size(); ++i) {
        const int sender = senders[i];
        const auto partners = partners_of(sender, size);
        for (const int to : next_relays(origin, sender, size)) {
          EXPECT_EQ(std::count(partners.begin(), partners.end(), to), 1);
          EXPECT_TRUE(relays.emplace(to, relays.at(sender) + 1).second) << to << " of " << size;
          senders.push_back(to);
        }
      }
      EXPECT_EQ(static_cast<int>(relays.size()), size);
      for (const auto& [rank, count] : relays) EXPECT_LE(count, num_levels(size)) << rank;
    }
  }
}

// What is flooded arrives at all others, whichever rank is missing.
TEST(Relay, WithoutAnyOneRankTheOthersAreConnectedByPartners) {
  for (const int size : kSizes) {
    for (int missing = 0; missing < std::min(size, 130); ++missing) {
      std::vector<bool> reached(static_cast<std::size_t>(size));
      reached[static_cast<std::size_t>(missing)] = true;
      std::vector<int> queue;
      const auto reach = [&](int rank) {
        if (reached[static_cast<std::size_t>(rank)]) return;
        reached[static_cast<std::size_t>(rank)] = true;
        queue.push_back(rank);
      };
      reach((missing + 1) % size);
      for (std::size_t i = 0; i < queue.size(); ++i) {
        for (const int next : partners_of(queue[i], size)) reach(next);
      }
      EXPECT_EQ(std::count(reached.begin(), reached.end(), false), 0) << missing << " of " << size;
    }
  }
}

}  // namespace
}  // namespace lockstep
