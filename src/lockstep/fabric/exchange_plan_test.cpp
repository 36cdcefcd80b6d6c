// Every sum that the transfers compute, as text, is that of the tree; and the choice of the
// algorithm.
#include "lockstep/fabric/exchange_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

// The definition in leaf_tree.h, as text.
std::string tree(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  int middle = 1;
  while (2 * middle < end - begin) middle *= 2;
  return "(" + tree(begin, begin + middle) + "+" + tree(begin + middle, end) + ")";
}

std::vector<int> all_sizes() {
  std::vector<int> sizes;
  for (int size = 2; size <= 33; ++size) sizes.push_back(size);
  sizes.insert(sizes.end(), {64, 65, 100, 127});
  return sizes;
}

using Texts = std::vector<std::string>;  // one per element

// Executes the plans of all members. A member waits for what it receives.
class Simulation {
 public:
  Simulation(int size, std::size_t count, bool is_doubling)
      : size_(size), count_(count), sums_(static_cast<std::size_t>(size)), sent_(sums_.size()) {
    for (int member = 0; member < size; ++member) {
      plans_.push_back(is_doubling ? plan_doubling(member, size, count)
                                   : plan_halving(member, size, count, 1));
      sums_[static_cast<std::size_t>(member)].assign(count, std::to_string(member));
    }
  }

  void reduce() {
    run([&](std::size_t member) { return plans_[member].transfers; }, /*returns=*/false);
  }
  // The transfers of a halving in reverse, with results.
  void gather() {
    run(
        [&](std::size_t member) {
          auto transfers = plans_[member].transfers;
          std::reverse(transfers.begin(), transfers.end());
          for (auto& transfer : transfers) {
            std::swap(transfer.send, transfer.receive);
            transfer.replaces = true;
          }
          return transfers;
        },
        /*returns=*/true);
  }

  [[nodiscard]] const Texts& sums(int member) const {
    return sums_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] const Part& owned(int member) const {
    return plans_[static_cast<std::size_t>(member)].owned;
  }
  [[nodiscard]] std::size_t sent(int member) const {
    return sent_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] std::size_t num_steps(int member) const {
    return plans_[static_cast<std::size_t>(member)].transfers.size();
  }

 private:
  using Key = std::tuple<int, int, std::uint32_t>;  // from, to, tag

  template <typename StepsOf>
  void run(const StepsOf& transfers_of, bool returns) {
    std::map<Key, Texts> messages;
    std::vector<std::size_t> next(sums_.size());
    std::vector<bool> begun(sums_.size());
    std::fill(sent_.begin(), sent_.end(), 0);
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int member = 0; member < size_; ++member) {
        const auto index = static_cast<std::size_t>(member);
        const auto transfers = transfers_of(index);
        while (next[index] < transfers.size()) {
          const auto& transfer = transfers[next[index]];
          auto& own = sums_[index];
          if (!begun[index] && transfer.send.length > 0) {
            const auto begin = own.begin() + static_cast<std::ptrdiff_t>(transfer.send.begin);
            const bool is_new =
                messages
                    .emplace(
                        Key{member, transfer.peer, transfer.tag},
                        Texts(begin, begin + static_cast<std::ptrdiff_t>(transfer.send.length)))
                    .second;
            ASSERT_TRUE(is_new) << "tags are unique";
            sent_[index] += transfer.send.length;
            if (!returns) expect_stated(transfer.sent, own[transfer.send.begin]);
          }
          begun[index] = true;
          if (transfer.receive.length > 0) {
            const auto found = messages.find({transfer.peer, member, transfer.tag});
            if (found == messages.end()) break;
            ASSERT_EQ(found->second.size(), transfer.receive.length);
            for (std::size_t i = 0; i < transfer.receive.length; ++i) {
              auto& sum = own[transfer.receive.begin + i];
              const auto& other = found->second[i];
              const bool is_first = transfer.received.begin < member;
              sum = transfer.replaces                             ? other
                    : is_first && transfer.received.end <= member ? "(" + other + "+" + sum + ")"
                                                                  : "(" + sum + "+" + other + ")";
            }
          }
          has_moved = true;
          begun[index] = false;
          ++next[index];
        }
      }
    }
    for (std::size_t index = 0; index < next.size(); ++index) {
      ASSERT_EQ(next[index], transfers_of(index).size()) << "member " << index << " waits for ever";
    }
  }

  static void expect_stated(const LeafInterval& members, const std::string& sum) {
    ASSERT_EQ(sum, tree(static_cast<int>(members.begin), static_cast<int>(members.end)));
  }

  int size_;
  std::size_t count_;
  std::vector<ExchangePlan> plans_;
  std::vector<Texts> sums_;
  std::vector<std::size_t> sent_;  // elements
};

TEST(ExchangePlan, DoublingGivesEveryMemberTheSumOfTheTree) {
  for (const int size : all_sizes()) {
    Simulation simulation(size, 1, /*is_doubling=*/true);
    ASSERT_NO_FATAL_FAILURE(simulation.reduce()) << size << " members";
    std::size_t levels = 0;
    while ((1U << levels) < static_cast<unsigned>(size)) ++levels;
    for (int member = 0; member < size; ++member) {
      ASSERT_EQ(simulation.sums(member).front(), tree(0, size)) << "member " << member;
      ASSERT_LE(simulation.num_steps(member), 2 * levels);
      if ((size & (size - 1)) == 0) {
        ASSERT_EQ(simulation.num_steps(member), levels);
      }
    }
  }
}

TEST(ExchangePlan, HalvingGivesEveryElementToOneOwnerWithTheSumOfTheTree) {
  for (const int size : all_sizes()) {
    const auto count = static_cast<std::size_t>(2 * size + 3);
    Simulation simulation(size, count, /*is_doubling=*/false);
    ASSERT_NO_FATAL_FAILURE(simulation.reduce()) << size << " members";
    const auto wanted = tree(0, size);
    std::vector<int> owners(count);
    for (int member = 0; member < size; ++member) {
      ASSERT_EQ(simulation.owned(member), owned_after_halving(member, size, count, 1));
      for (auto i = simulation.owned(member).begin; i < simulation.owned(member).end(); ++i) {
        ++owners[i];
        ASSERT_EQ(simulation.sums(member)[i], wanted) << "member " << member << ", element " << i;
      }
      // At most the input; halves of odd parts differ by one.
      ASSERT_LE(simulation.sent(member), count + simulation.num_steps(member));
    }
    ASSERT_TRUE(std::all_of(owners.begin(), owners.end(), [](int each) { return each == 1; }));
    ASSERT_NO_FATAL_FAILURE(simulation.gather());
    for (int member = 0; member < size; ++member) {
      ASSERT_EQ(simulation.sums(member), Texts(count, wanted)) << "member " << member;
      ASSERT_LE(simulation.sent(member), count + simulation.num_steps(member));
    }
  }
}

TEST(ExchangePlan, HalvingAmongAPowerOfTwoSendsTheLeast) {
  for (const int size : {2, 4, 8, 16, 64}) {
    const auto count = static_cast<std::size_t>(size) * 10;
    Simulation simulation(size, count, /*is_doubling=*/false);
    ASSERT_NO_FATAL_FAILURE(simulation.reduce());
    for (int member = 0; member < size; ++member) {
      EXPECT_EQ(simulation.sent(member), count - 10);
      EXPECT_EQ(simulation.owned(member).length, 10U);
    }
  }
}

TEST(ExchangePlan, PartsBeginAtMultiplesOfTheAlignment) {
  for (const int size : {2, 3, 7, 8}) {
    for (int member = 0; member < size; ++member) {
      for (const auto& transfer : plan_halving(member, size, 1000, 16).transfers) {
        EXPECT_EQ(transfer.send.length > 0 ? transfer.send.begin % 16 : 0, 0U);
        EXPECT_EQ(transfer.receive.length > 0 ? transfer.receive.begin % 16 : 0, 0U);
      }
    }
  }
}

constexpr ExchangeAlgorithm kExact[] = {ExchangeAlgorithm::direct, ExchangeAlgorithm::doubling,
                                        ExchangeAlgorithm::halving};

TEST(ExchangeChoice, IsTheLowestCost) {
  for (int members = 2; members <= kMostDirect; ++members) {
    for (std::size_t bytes = 1; bytes <= 64U << 20; bytes *= 4) {
      const ExchangeSize size{.members = members, .bytes = bytes};
      const auto chosen = choose_exchange(size, {});
      for (const auto other : kExact) {
        ASSERT_LE(seconds_of(chosen, size, {}), seconds_of(other, size, {}))
            << members << " members, " << bytes << " bytes";
      }
    }
  }
}

TEST(ExchangeChoice, SmallInputsDoubleAndLargeOnesDoNot) {
  EXPECT_EQ(choose_exchange({.members = 32, .bytes = 4000}, {}), ExchangeAlgorithm::doubling);
  EXPECT_EQ(choose_exchange({.members = 16, .bytes = 25U << 20}, {}), ExchangeAlgorithm::direct);
  EXPECT_EQ(choose_exchange({.members = 128, .bytes = 25U << 20}, {}), ExchangeAlgorithm::halving);
  EXPECT_EQ(choose_exchange({.members = 8, .bytes = 1024, .most_carried = 16U << 10}, {}),
            ExchangeAlgorithm::carried);
}

TEST(ExchangeChoice, MoreThan64MembersNeverExchangeDirectly) {
  for (int members = kMostDirect + 1; members <= 1024; members += 37) {
    for (std::size_t bytes = 16; bytes <= 256U << 20; bytes *= 4) {
      const auto chosen = choose_exchange({.members = members, .bytes = bytes}, {});
      EXPECT_TRUE(chosen == ExchangeAlgorithm::doubling || chosen == ExchangeAlgorithm::halving);
    }
  }
}

TEST(ExchangeChoice, AMeasuredLinkMovesTheThreshold) {
  const ExchangeSize size{.members = 16, .bytes = 20'000};
  NetworkLink slow{.bandwidth = 1e8};
  NetworkLink fast{.latency = 5e-6, .message = 1e-5, .bandwidth = 2.5e10};
  EXPECT_EQ(choose_exchange(size, slow), ExchangeAlgorithm::direct) << "bytes count";
  EXPECT_EQ(choose_exchange(size, fast), ExchangeAlgorithm::doubling) << "messages count";
}

TEST(ExchangeChoice, TwoMembersDoubleUntilCombiningCostsMoreThanAStep) {
  EXPECT_EQ(choose_exchange({.members = 2, .bytes = 64U << 10}, {}), ExchangeAlgorithm::doubling);
  EXPECT_EQ(choose_exchange({.members = 2, .bytes = 25U << 20}, {}), ExchangeAlgorithm::direct);
  EXPECT_EQ(choose_exchange({.members = 2, .bytes = 25U << 20, .excludes_direct = true}, {}),
            ExchangeAlgorithm::halving);
}

// Costs of the table in docs/collectives.md. Combining costs 1e-10 s per byte.
TEST(ExchangeChoice, CostsAreStepsMessagesAndBytes) {
  const NetworkLink link{.latency = 1, .message = 1e-3, .bandwidth = 1e9};
  const ExchangeSize size{.members = 4, .bytes = 1'000'000};
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::direct, size, link), 2 + 6e-3 + 1.5e-3 + 1e-4, 1e-9);
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::doubling, size, link), 2 + 2e-3 + 2e-3 + 4e-4, 1e-9);
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::halving, size, link), 4 + 4e-3 + 1.5e-3 + 1.5e-4, 1e-9);
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::ring, size, link), 6 + 6e-3 + 1.5e-3 + 1.5e-4, 1e-9);
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::carried, size, link), 3e-3 + 4e-4, 1e-9);
  const ExchangeSize three{.members = 3, .bytes = 1'000'000};
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::doubling, three, link), 3 + 3e-3 + 3e-3 + 4e-4, 1e-9);
  const ExchangeSize narrow{.members = 4, .bytes = 1'000'000, .has_wide_sums = true};
  EXPECT_NEAR(seconds_of(ExchangeAlgorithm::halving, narrow, link), 4 + 4e-3 + 1.75e-3 + 1.5e-4,
              1e-9);
}

}  // namespace
}  // namespace lockstep
