// Calls on ranges whose elements have owners, against a serial oracle.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/device_alone_internal.h"
#include "lockstep/collectives/peer_calls.h"
#include "lockstep/collectives/test_groups_internal.h"

namespace lockstep {
namespace {

using SharedOwners = std::shared_ptr<const Owners>;

// Uneven pieces: the last rank has two, the second one none if there are three or more ranks.
SharedOwners uneven(int size, std::int64_t count) {
  const auto tenth = count / 10;
  std::vector<OwnedPiece> pieces{{size - 1, tenth}, {0, 2 * tenth}, {size - 1, tenth + tenth / 3}};
  for (int rank = 0; rank < size; ++rank) {
    if (size > 2 && rank == 1) continue;
    pieces.push_back({rank, tenth / size});
  }
  auto left = count;
  for (const auto& piece : pieces) left -= piece.count;
  pieces.push_back({0, left});
  return std::make_shared<const Owners>(size, pieces);
}

// The contribution of `rank`: integers, whose sum is exact in every order.
at::Tensor contribution(int rank, std::int64_t count, at::ScalarType dtype) {
  return ((torch::arange(count, at::kLong) * (rank + 3)).remainder(11) + rank + 1).to(dtype);
}

// The owner of each element.
at::Tensor owner_of_each(const Owners& owners) {
  auto owner = torch::full({owners.count()}, -1, at::kLong);
  for (int rank = 0; rank < owners.num_ranks(); ++rank) {
    for (const auto& range : owners.of(rank)) {
      owner.slice(0, range.begin, range.begin + range.count).fill_(rank);
    }
  }
  return owner;
}

at::Tensor all_contributions(int size, std::int64_t count, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(contribution(rank, count, dtype));
  return torch::stack(all);
}

at::Tensor reduced(int size, std::int64_t count, at::ScalarType dtype, ReduceOp op) {
  const auto all = all_contributions(size, count, at::kDouble);
  if (op == ReduceOp::max) return std::get<0>(all.max(0)).to(dtype);
  const auto sum = all.sum(0);
  if (op == ReduceOp::sum) return sum.to(dtype);
  // Divided in float, as 16-bit data are; the sum is exact.
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return (sum.to(wide) / torch::full({}, size, wide)).to(dtype);
}

void check(const ProcessGroup& group, at::Tensor range, const SharedOwners& owners, ReduceOp op) {
  const auto count = range.numel();
  const auto dtype = range.scalar_type();
  const auto own = contribution(group.rank(), count, dtype);
  const auto owner = owner_of_each(*owners);
  range.copy_(own);
  const auto version = range._version();
  group.reduce_to_owners(range, owners, op).wait();
  const auto sum = reduced(group.size(), count, dtype, op);
  EXPECT_TRUE(torch::equal(range, torch::where(owner == group.rank(), sum, own)))
      << count << " × " << dtype << " on rank " << group.rank() << " of " << group.size();
  EXPECT_GT(range._version(), version);
  group.gather_from_owners(range, owners).wait();
  EXPECT_TRUE(torch::equal(range, sum)) << count << " × " << dtype;
}

void check_all(const ProcessGroup& group) {
  auto memory = group.allocate(200'000 * 8);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    for (const std::int64_t count : {0, 7, 1001, 100'003}) {
      const auto owners = uneven(group.size(), count);
      for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
        if (op == ReduceOp::average && !at::isFloatingType(dtype)) continue;
        check(group, torch::empty({count}, dtype), owners, op);
        check(group, memory.view(dtype).slice(0, 0, count), owners, op);
      }
    }
  }
}

class OwnerCallsOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OwnerCallsOfSize, ::testing::Range(1, 6));

TEST_P(OwnerCallsOfSize, OwnersReceiveTheReductionAndAllRanksGatherIt) {
  with_sound_groups(GetParam(), [](ProcessGroup& group) { check_all(group); });
}

TEST(OwnerCalls, NetworksGiveTheSameTensors) {
  with_groups(3, [](ProcessGroup& group) { check_all(group); }, {.backend = Backend::tcp});
}

TEST_P(OwnerCallsOfSize, AWeightedAverageDividesByTheWeightsOfAllRanks) {
  with_sound_groups(GetParam(), [](ProcessGroup& group) {
    const auto owners = uneven(group.size(), 5000);
    const auto owner = owner_of_each(*owners);
    auto range = torch::full({5000}, 3.0F);
    group.reduce_to_owners(range, owners, ReduceOp::weighted_average, {.weight = group.rank()})
        .wait();
    const auto size = static_cast<float>(group.size());
    const auto average = 3 * size / std::max(1.0F, size * (size - 1) / 2);
    EXPECT_TRUE(torch::equal(
        range, torch::where(owner == group.rank(), torch::full({5000}, average), 3.0F)));
  });
}

TEST(OwnerCalls, OwnersAreKeptUntilTheCallIsDone) {
  with_sound_groups(2, [](ProcessGroup& group) {
    auto owners = uneven(2, 50'000);
    const std::weak_ptr<const Owners> watched = owners;
    auto range = torch::ones({50'000});
    {
      auto work = group.reduce_to_owners(range, std::move(owners));
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      work.wait();
    }
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(range.sum().item<float>(), 50'000 + uneven(2, 50'000)->count_of(group.rank()));
  });
}

// What a group of one rank does on a GPU, here on CPU tensors.
TEST(OwnerCalls, OneRankAloneDividesByItsWeightAndGathersNothing) {
  const auto run = [](Collective kind, ReduceOp op, std::int64_t weight) {
    auto range = torch::full({5}, 8.0F);
    run_alone_on_device({.kind = kind, .op = op, .weight = weight}, range, range);
    return range;
  };
  EXPECT_TRUE(torch::equal(run(Collective::reduce_to_owners, ReduceOp::weighted_average, 4),
                           torch::full({5}, 2.0F)));
  EXPECT_TRUE(torch::equal(run(Collective::reduce_to_owners, ReduceOp::average, 1),
                           torch::full({5}, 8.0F)));
  EXPECT_TRUE(torch::equal(run(Collective::gather_from_owners, ReduceOp::weighted_average, 4),
                           torch::full({5}, 8.0F)));
}

TEST(OwnerCalls, InvalidOwnersAreRefused) {
  with_sound_groups(2, [](ProcessGroup& group) {
    auto range = torch::ones({100});
    EXPECT_THROW((void)group.reduce_to_owners(range, nullptr), UsageError);
    EXPECT_THROW((void)group.reduce_to_owners(range, uneven(2, 99)), UsageError);
    EXPECT_THROW((void)group.gather_from_owners(range, uneven(3, 100)), UsageError);
    auto spread = torch::ones({100, 2}).select(1, 0);
    EXPECT_THROW((void)group.gather_from_owners(spread, uneven(2, 100)), UsageError);
    EXPECT_THROW((void)group.reduce_to_owners(range, uneven(2, 100), ReduceOp::weighted_average),
                 UsageError);
  });
}

PeerCall next_call_of(const PeerCalls& calls, int rank) {
  for (;;) {
    if (const auto next = calls.next_of(rank)) return *next;
    std::this_thread::yield();
  }
}

std::string refusal_of(const PeerCalls& calls, const PeerCall& call) {
  try {
    (void)calls.answer(call, at::kCPU);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// Rank 1 has no batch.
TEST(OwnerCalls, ARankWithoutABatchFollowsAReductionWhoseOwnersItKnows) {
  with_sound_groups(2, [](ProcessGroup& group) {
    const auto owners = uneven(2, 3000);
    const auto own = owner_of_each(*owners) == group.rank();
    const PeerCalls calls(group);
    auto known = torch::ones({3000});
    group.reduce_to_owners(known, owners).wait();
    for (const auto op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                          ReduceOp::weighted_average}) {
      auto range = torch::full({3000}, -4.0F);
      if (group.rank() == 1) {
        calls.answer(next_call_of(calls, 0), at::kCPU).wait();
        continue;
      }
      const CallOptions options{.name = "followed", .flags = CallFlags{}, .weight = 2};
      auto work = group.reduce_to_owners(range, owners, op, options);
      work.wait();
      EXPECT_EQ(work.flags().num_absent, 1);
      const auto wanted = op == ReduceOp::weighted_average ? -2.0F : -4.0F;
      EXPECT_TRUE(torch::equal(range, torch::where(own, torch::full({3000}, wanted), -4.0F)));
    }
  });
}

TEST(OwnerCalls, ARankWithoutABatchIsToldWhatToDoInstead) {
  with_sound_groups(2, [](ProcessGroup& group) {
    const auto owners = uneven(2, 3000);
    const PeerCalls calls(group);
    auto range = torch::ones({3000});
    const auto expect_refusal = [&](const std::string& call, const std::string& fix) {
      if (group.rank() == 0) return;
      const auto refusal = refusal_of(calls, next_call_of(calls, 0));
      EXPECT_NE(refusal.find(call), std::string::npos) << refusal;
      EXPECT_NE(refusal.find(fix), std::string::npos) << refusal;
    };
    const auto make = [&](const std::string& call, const std::string& fix, const auto& start) {
      if (group.rank() == 0) return start().wait();
      expect_refusal(call, fix);
      start().wait();  // in order that rank 0 can continue
    };
    make("reduce_to_owners(sum, 3000 × float32", "with the same owners on every rank before",
         [&] { return group.reduce_to_owners(range, owners); });
    make("reduce_to_owners(average, 3000 × float32", "use ReduceOp::weighted_average",
         [&] { return group.reduce_to_owners(range, owners, ReduceOp::average); });
    make("gather_from_owners(3000 × float32", "use a reduction, or make the call before the loop",
         [&] { return group.gather_from_owners(range, owners); });
    // A rank that has failed takes part in both, if it knows the owners.
    for (const auto kind : {0, 1}) {
      if (group.rank() == 1) {
        calls.answer_as_failed(next_call_of(calls, 0), at::kCPU, {.any = 1}).wait();
      } else {
        const CallOptions options{.flags = CallFlags{}};
        auto work = kind == 0 ? group.reduce_to_owners(range, owners, ReduceOp::sum, options)
                              : group.gather_from_owners(range, owners, options);
        work.wait();
        EXPECT_EQ(work.flags().any, 1U);
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
