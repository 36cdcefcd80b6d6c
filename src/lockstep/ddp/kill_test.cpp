// A rank is killed during backward: every survivor gets PeerError with its rank within a second and
// continues to train in a group of the survivors.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <optional>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSize = 3;

at::Tensor forward(torch::nn::Sequential& net, int rank, int step, bool die) {
  auto x = batch_of(rank, step, 4, 64);
  for (std::size_t i = 0; i < net->size(); ++i) {
    x = torch::tanh(net[i]->as<torch::nn::Linear>()->forward(x));
    if (die && i == net->size() / 2) {
      x.register_hook([](const at::Tensor&) { ::kill(::getpid(), SIGKILL); });
    }
  }
  return x.square().mean();
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) net->push_back(torch::nn::Linear(64, 64));
  fill(*net, 1);
  return net;
}

// The next step of the survivors, computed in one process.
std::vector<at::Tensor> survivors_mean(int victim, int step) {
  std::vector<std::vector<at::Tensor>> all;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    auto net = make_net();
    forward(net, rank, step, false).backward();
    all.push_back(gradients_of(*net));
  }
  return serial_mean(all, kSize - 1);
}

void survive(int rank, int victim) {
  auto net = make_net();
  std::optional<World> world(world_of_processes(rank, kSize));
  std::optional<ProcessGroup> group(std::in_place, *world);
  Ddp ddp(*net, *group, {.bucket_bytes = 20'000});
  for (int step = 0; step < 2; ++step) {
    forward(net, rank, step, false).backward();
    net->zero_grad();
  }
  auto loss = forward(net, rank, 2, rank == victim);
  group->barrier().wait();
  const auto begin = Clock::now();
  try {
    loss.backward();
    ADD_FAILURE() << "no PeerError";
  } catch (const PeerError& error) {
    const std::chrono::duration<double> took = Clock::now() - begin;
    ::printf("rank %d heard after %.3f s: %s\n", rank, took.count(), error.what());
    EXPECT_EQ(error.rank(), victim) << error.what();
    EXPECT_LT(took.count(), 10.0);  // usually 0.1
  }
  group.reset();
  world.reset();
  const int new_rank = rank < victim ? rank : rank - 1;
  const auto smaller = world_of_processes(new_rank, kSize - 1, 1);
  ddp.rebind(ProcessGroup(smaller));
  // The first one without zero_grad(): the gradients of the failed step are discarded.
  for (int again = 0; again < 2; ++again) {
    forward(net, rank, 3, false).backward();
    EXPECT_TRUE(are_equal(gradients_of(*net), survivors_mean(victim, 3)));
    net->zero_grad();
  }
}

TEST(Kill, SurvivorsOfABackwardNameTheRankAndContinue) {
  for (const int victim : {0, 2}) {
    const auto outcomes = testing::run_ranks_as_processes(
        kSize, [&](testing::Rank& self) { survive(self.rank(), victim); },
        {.expect = testing::Expect::anything});
    for (int rank = 0; rank < kSize; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
      } else {
        EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
