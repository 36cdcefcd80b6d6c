#include "lockstep/collectives/process_group.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using testing::Rank;
using torch::arange;
using torch::equal;
using torch::full;
using torch::kFloat;
using torch::kLong;

// The contribution of `rank`: integers, whose sum is exact in every order.
at::Tensor contribution(int rank, std::int64_t count, at::ScalarType dtype = kFloat) {
  return (arange(count, kLong).remainder(7) + rank + 1).to(dtype);
}

at::Tensor sum_of_contributions(int size, std::int64_t count, at::ScalarType dtype = kFloat) {
  auto sum = torch::zeros({count}, kLong);
  for (int rank = 0; rank < size; ++rank) sum += contribution(rank, count, kLong);
  return sum.to(dtype);
}

class ProcessGroupOfSize : public ::testing::TestWithParam<int> {
 protected:
  // Runs `body` on every rank, as a thread.
  void with_groups(const std::function<void(ProcessGroup&)>& body) {
    with_sound_groups(GetParam(), body);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupOfSize, ::testing::Range(1, 6));

TEST_P(ProcessGroupOfSize, ReducesTensorsOfEveryType) {
  with_groups([](ProcessGroup& group) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kInt,
                             at::kLong, at::kByte}) {
      for (const std::int64_t count : {0, 1, 10, 5000}) {
        auto tensor = contribution(group.rank(), count, dtype);
        group.all_reduce(tensor).wait();
        EXPECT_TRUE(equal(tensor, sum_of_contributions(group.size(), count, dtype)))
            << dtype << " × " << count;
      }
    }
    auto any = torch::zeros({3}, torch::kBool);
    any[0] = group.rank() == group.size() - 1;
    group.all_reduce(any).wait();
    EXPECT_TRUE(equal(any, torch::tensor({true, false, false})));
  });
}

TEST_P(ProcessGroupOfSize, AveragesAndKeepsShapes) {
  with_groups([](ProcessGroup& group) {
    auto tensor = contribution(group.rank(), 60).view({3, 4, 5});
    group.all_reduce(tensor, ReduceOp::average).wait();
    EXPECT_TRUE(
        equal(tensor, (sum_of_contributions(group.size(), 60) / group.size()).view({3, 4, 5})));
  });
}

TEST_P(ProcessGroupOfSize, EveryCollectiveGivesTheExpectedTensors) {
  with_groups([](ProcessGroup& group) {
    const int rank = group.rank();
    const int size = group.size();
    const int root = size - 1;
    const std::int64_t count = 2000;
    auto whole = torch::empty({size * count});
    std::vector<at::Tensor> all;
    for (int other = 0; other < size; ++other) all.push_back(contribution(other, count));
    group.all_gather(whole, all[static_cast<std::size_t>(rank)]).wait();
    EXPECT_TRUE(equal(whole, torch::cat(all)));

    auto part = torch::empty({count});
    group.reduce_scatter(part, whole).wait();
    EXPECT_TRUE(equal(part, all[static_cast<std::size_t>(rank)] * size));

    auto shared = contribution(rank, count);
    group.broadcast(shared, root).wait();
    EXPECT_TRUE(equal(shared, contribution(root, count)));

    auto reduced = contribution(rank, count);
    group.reduce(reduced, root).wait();
    EXPECT_TRUE(equal(
        reduced, rank == root ? sum_of_contributions(size, count) : contribution(rank, count)));

    auto gathered = rank == root ? torch::empty({size * count}) : at::Tensor();
    group.gather(gathered, contribution(rank, count), root).wait();
    EXPECT_TRUE(rank != root || equal(gathered, torch::cat(all)));

    auto scattered = torch::empty({count});
    group.scatter(scattered, rank == root ? torch::cat(all) : at::Tensor(), root).wait();
    EXPECT_TRUE(equal(scattered, contribution(rank, count)));

    auto exchanged = torch::empty({size, 3});
    const auto to_all = full({size, 3}, rank) * 10 + arange(size).view({size, 1});
    group.all_to_all(exchanged, to_all.to(kFloat)).wait();
    EXPECT_TRUE(equal(exchanged, (arange(size).view({size, 1}) * 10 + rank).expand({size, 3})));

    auto received = torch::empty({count});
    auto send = group.send(contribution(rank, count), (rank + 1) % size, 5);
    auto receive = group.receive(received, (rank + size - 1) % size, 5);
    receive.wait();
    send.wait();
    EXPECT_TRUE(equal(received, contribution((rank + size - 1) % size, count)));
  });
}

TEST_P(ProcessGroupOfSize, IsReservedAsLongAsAReservingCopyExists) {
  with_groups([](ProcessGroup& group) {
    EXPECT_FALSE(group.is_reserved());
    const auto same = group;
    std::optional<ProcessGroup> copy;
    {
      const auto reserved = group.reserve();
      EXPECT_TRUE(group.is_reserved());
      EXPECT_TRUE(same.is_reserved());
      EXPECT_FALSE(group.split(0).is_reserved()) << "another group";
      copy = reserved;
    }
    EXPECT_TRUE(group.is_reserved());
    copy->barrier().wait();
    copy.reset();
    EXPECT_FALSE(group.is_reserved());
  });
}

TEST_P(ProcessGroupOfSize, AListReturnsOneWork) {
  with_groups([](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 100; ++i) tensors.push_back(contribution(group.rank(), 10 + i));
    auto work = group.all_reduce(at::TensorList(tensors));
    while (!work.done()) {
    }
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(
          equal(tensors[static_cast<std::size_t>(i)], sum_of_contributions(group.size(), 10 + i)));
    }
    group.broadcast(at::TensorList(tensors)).wait();
    EXPECT_THROW((void)group.all_gather(at::TensorList(tensors), at::TensorList()), UsageError);
  });
}

TEST_P(ProcessGroupOfSize, RegisteredMemoryIsBitIdenticalToOrdinaryMemoryAndOutlivesItsGroup) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(GetParam(), [&](Rank& self) {
    const std::int64_t count = 100'000;
    torch::Tensor shared;
    {
      ProcessGroup group(point.join(self.rank(), self.size()));
      shared = group.allocate(count * 4).view(kFloat);
      EXPECT_TRUE(equal(shared, torch::zeros({count})));
      auto generator = at::make_generator<at::CPUGeneratorImpl>(self.rank() + 1);
      auto ordinary = torch::randn({count}, generator);
      shared.copy_(ordinary);
      group.all_reduce(shared).wait();
      group.all_reduce(ordinary).wait();
      EXPECT_TRUE(equal(shared, ordinary));
      auto slice = shared.narrow(0, 1000, 5000);
      group.all_reduce(slice, ReduceOp::max).wait();
    }
    shared += 1;  // still there
    EXPECT_TRUE(shared.isfinite().all().item<bool>());
  });
}

TEST_P(ProcessGroupOfSize, SplitsByColorInTheOrderOfKeys) {
  with_groups([](ProcessGroup& group) {
    const int color = group.rank() % 2;
    const auto half = group.split(color, -group.rank());
    EXPECT_EQ(half.size(), (group.size() + 1 - color) / 2);
    auto global = torch::tensor(static_cast<std::int64_t>(group.rank()));
    half.broadcast(global).wait();  // from the largest rank of the color
    EXPECT_EQ(global.item<std::int64_t>(), half.global_rank(0));
    auto sum = torch::tensor(1);
    half.all_reduce(sum).wait();
    EXPECT_EQ(sum.item<std::int64_t>(), half.size());
  });
}

TEST_P(ProcessGroupOfSize, TheFlagsOfACallAreCombined) {
  with_groups([](ProcessGroup& group) {
    auto tensor = torch::ones({4});
    auto work = group.all_reduce(
        tensor, ReduceOp::sum,
        {.name = "gradients",
         .flags =
             CallFlags{.sum = group.rank() + 1, .equal = 9, .any = group.rank() == 0 ? 2U : 0U}});
    work.wait();
    EXPECT_EQ(work.flags().sum, group.size() * (group.size() + 1) / 2);
    EXPECT_EQ(work.flags().any, 2U);
    EXPECT_TRUE(work.flags().all_equal);
  });
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(ProcessGroup, AnUnsupportedTensorIsRefusedWithTheReason) {
  ProcessGroup group(World::alone());
  auto columns = torch::zeros({3, 4}).t();
  EXPECT_EQ(failure_of([&] { (void)group.all_reduce(columns); }),
            "the tensor of all_reduce of shape [4, 3] is not contiguous; call contiguous() on it");
  auto complex = torch::zeros({2}, torch::kComplexFloat);
  EXPECT_NE(failure_of([&] { (void)group.all_reduce(complex); }).find("dtype ComplexFloat"),
            std::string::npos);
  at::Tensor nothing;
  EXPECT_EQ(failure_of([&] { (void)group.broadcast(nothing); }),
            "the tensor of broadcast is an undefined tensor");
  auto sparse = torch::zeros({3}).to_sparse();
  EXPECT_NE(failure_of([&] { (void)group.all_reduce(sparse); }).find("sparse"), std::string::npos);
  auto whole = torch::zeros({3}, kLong);
  EXPECT_NE(failure_of([&] { (void)group.all_reduce(whole, ReduceOp::average); }).find("average"),
            std::string::npos);
  auto doubles = torch::zeros({3}, torch::kDouble);
  EXPECT_NE(failure_of([&] {
              (void)group.all_gather(doubles, torch::zeros({3}));
            }).find("the same dtype"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { (void)group.allocate(8, at::Device("cuda:0")); }).find("cuda:0"),
            std::string::npos);
  auto fine = torch::zeros({3});
  EXPECT_NE(failure_of([&] { (void)group.broadcast(fine, 3); }).find("rank 3"), std::string::npos);
}

TEST(ProcessGroup, AutogradDetectsThatATensorWasWritten) {
  ProcessGroup group(World::alone());
  auto leaf = torch::ones({3}, torch::requires_grad());
  const auto loss = (leaf * leaf).sum();
  const auto before = leaf._version();
  group.all_reduce(leaf).wait();
  EXPECT_GT(leaf._version(), before);
  EXPECT_THROW(loss.backward(), c10::Error) << "autograd did not notice";
}

TEST(ProcessGroup, WorksBetweenProcesses) {
  (void)testing::run_ranks_as_processes(3, [](Rank& self) {
    const auto world = world_of_processes(self.rank(), self.size());
    ProcessGroup group(world);
    auto bucket = group.allocate(40'000).view(kFloat);
    bucket.copy_(contribution(self.rank(), 10'000));
    auto first = group.all_reduce(bucket);
    auto other = contribution(self.rank(), 300'000);
    auto second = group.all_reduce(other);
    second.wait();
    first.wait();
    EXPECT_TRUE(equal(bucket, sum_of_contributions(3, 10'000)));
    EXPECT_TRUE(equal(other, sum_of_contributions(3, 300'000)));
    self.barrier(soon());
  });
}

}  // namespace
}  // namespace lockstep
