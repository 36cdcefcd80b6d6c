#include "lockstep/fabric/host_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

std::vector<int> hosts_of_sizes(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(sizes[host]), static_cast<int>(host));
  }
  return hosts;
}

// Every composition of 1 to 9 ranks into hosts of consecutive ranks, the layouts that the documents
// name, and ranks in mixed order.
std::vector<std::vector<int>> all_layouts() {
  std::vector<std::vector<int>> layouts;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (unsigned cuts = 0; cuts < 1U << (ranks - 1); ++cuts) {
      std::vector<int> hosts(static_cast<std::size_t>(ranks));
      for (std::size_t rank = 1; rank < hosts.size(); ++rank) {
        hosts[rank] = hosts[rank - 1] + static_cast<int>(cuts >> (rank - 1) & 1);
      }
      layouts.push_back(hosts);
    }
  }
  for (const std::vector<int>& sizes : {std::vector<int>{4, 4, 4, 4, 4, 4},
                                        {6, 6, 6, 6},
                                        {8, 8, 8},
                                        {16, 1, 7},
                                        {3, 3, 3, 3, 3, 3, 3}}) {
    layouts.push_back(hosts_of_sizes(sizes));
  }
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    std::vector<int> hosts(1 + random() % 20);
    for (auto& host : hosts) host = static_cast<int>(random() % 4) * 10;
    layouts.push_back(hosts);
  }
  return layouts;
}

float of_rank(int rank, std::size_t element) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1009U + static_cast<unsigned>(element));
  return std::uniform_real_distribution<float>(-1, 1)(random) * (rank % 3 == 0 ? 1e6F : 1.0F);
}

float reduced(const TreePlan& tree, const std::vector<float>& values) {
  std::vector<const std::byte*> sources;
  for (const auto& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  float result = 0;
  auto* const destination = reinterpret_cast<std::byte*>(&result);
  reduce({}, tree, sources, std::span(&destination, 1), 1);
  return result;
}

// The tree over the ranks, as its definition says, without TreePlan.
float sum_by_definition(const std::vector<float>& values, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return values[begin];
  std::size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return sum_by_definition(values, begin, begin + half) +
         sum_by_definition(values, begin + half, end);
}

TEST(HostPlan, PartialsOfEveryLayoutGiveTheBitsOfTheTreeOverAllRanks) {
  for (const auto& hosts : all_layouts()) {
    const HostPlan plan(hosts);
    for (std::size_t element = 0; element < 20; ++element) {
      std::vector<float> inputs;
      for (int rank = 0; rank < plan.num_ranks(); ++rank) inputs.push_back(of_rank(rank, element));
      std::vector<float> partials;
      for (const auto& [host, ranks] : plan.partials()) {
        for (auto rank = ranks.begin; rank < ranks.end; ++rank) {
          ASSERT_EQ(plan.host_of(static_cast<int>(rank)), host) << "a partial is made on one host";
        }
        partials.push_back(sum_by_definition(inputs, static_cast<std::size_t>(ranks.begin),
                                             static_cast<std::size_t>(ranks.end)));
      }
      ASSERT_EQ(reduced(plan.tree(), partials), sum_by_definition(inputs, 0, inputs.size()));
    }
  }
}

TEST(HostPlan, PartialsAreMaximal) {
  const auto partials_of = [](const std::vector<int>& sizes) {
    const HostPlan plan(hosts_of_sizes(sizes));
    std::vector<int> counts;
    for (int host = 0; host < plan.num_hosts(); ++host)
      counts.push_back(plan.num_partials_of(host));
    return counts;
  };
  EXPECT_EQ(partials_of({1, 2, 3, 1}), (std::vector{1, 2, 2, 1}));
  EXPECT_EQ(partials_of({3, 5}), (std::vector{2, 2}));
  EXPECT_EQ(partials_of({7, 1}), (std::vector{3, 1}));
  EXPECT_EQ(partials_of({4, 4, 4, 4, 4, 4}), (std::vector{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(partials_of({6, 6, 6, 6}), (std::vector{2, 2, 2, 2}));
  EXPECT_EQ(partials_of({8}), (std::vector{1}));
  EXPECT_EQ(partials_of({1, 1, 1}), (std::vector{1, 1, 1}));
}

TEST(HostPlan, TheOwnedPartsCoverEveryElementOnceAndHostsOwnEqualParts) {
  for (const auto& hosts : all_layouts()) {
    const HostPlan plan(hosts);
    for (const std::size_t count : {0U, 1U, 5U, 64U, 1000U, 12345U}) {
      for (const std::size_t alignment : {1U, 16U}) {
        std::vector<int> owners(count);
        std::vector<std::size_t> owned(static_cast<std::size_t>(plan.num_hosts()));
        for (int rank = 0; rank < plan.num_ranks(); ++rank) {
          const auto part = plan.owned_by(rank, count, alignment);
          ASSERT_LE(part.end(), count);
          if (part.length > 0) {
            ASSERT_EQ(part.begin % alignment, 0U);
          }
          for (auto i = part.begin; i < part.end(); ++i) ++owners[i];
          owned[static_cast<std::size_t>(plan.host_of(rank))] += part.length;
        }
        ASSERT_TRUE(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
        const auto hosts_count = static_cast<std::size_t>(plan.num_hosts());
        for (const auto length : owned) {
          ASSERT_LE(length, (count + hosts_count - 1) / hosts_count + alignment);
        }
      }
    }
  }
}

TEST(HostPlan, SendersAreOnTheirHostAndShareTheWork) {
  for (const auto& hosts : all_layouts()) {
    const HostPlan plan(hosts);
    for (int host = 0; host < plan.num_hosts(); ++host) {
      for (int other = 0; other < plan.num_hosts(); ++other) {
        std::set<int> senders;
        for (const int owner : plan.ranks_of(other)) {
          const auto sender = plan.sender_to(owner, host);
          ASSERT_EQ(plan.host_of(sender), host);
          senders.insert(sender);
          if (host == other) {
            ASSERT_EQ(sender, owner) << "the owner reduces the partials of its own host";
          }
        }
        ASSERT_EQ(senders.size(),
                  std::min(plan.ranks_of(host).size(), plan.ranks_of(other).size()));
      }
    }
  }
}

// Counted element by element over the plan's own statements.
TEST(HostPlan, TheStatedBytesAreThoseOfTheTransfers) {
  for (const auto& hosts : all_layouts()) {
    const HostPlan plan(hosts);
    constexpr std::size_t kCount = 720;
    for (int host = 0; host < plan.num_hosts(); ++host) {
      std::size_t bytes = 0;
      for (int owner = 0; owner < plan.num_ranks(); ++owner) {
        const auto part = part_of(kCount, static_cast<std::size_t>(plan.host_of(owner)),
                                  static_cast<std::size_t>(plan.num_hosts()), 1);
        if (owner != plan.ranks_of(plan.host_of(owner)).front()) continue;  // once per host
        if (plan.host_of(owner) == host) {
          bytes += part.length * 2 * static_cast<std::size_t>(plan.num_hosts() - 1);
          continue;
        }
        for (const auto& partial : plan.partials()) {
          const bool leaf = plan.ranks_of(host).size() == 1;
          if (partial.host == host) bytes += part.length * (leaf ? 2U : 4U);
        }
      }
      ASSERT_EQ(plan.bytes_sent_by(host, kCount, 2, 4), bytes);
    }
  }
  const HostPlan pair(hosts_of_sizes({2, 2}));
  EXPECT_EQ(pair.bytes_sent_by(0, 1000, 4, 4), 4000U)
      << "the whole input once: half out, half back";
}

TEST(HostPlan, TheTextNamesTheTrafficOfOddHosts) {
  EXPECT_EQ(HostPlan(hosts_of_sizes({2, 3})).to_string(),
            "host 0: ranks 0 1; partial sums of 0-1; 1.0 times the traffic of an aligned host\n"
            "host 1: ranks 2 3 4; partial sums of 2-3, 4; 1.5 times the traffic of an aligned "
            "host\n");
}

TEST(HostPlan, AGroupWithoutRanksIsRefused) { EXPECT_THROW(HostPlan({}), UsageError); }

}  // namespace
}  // namespace lockstep
