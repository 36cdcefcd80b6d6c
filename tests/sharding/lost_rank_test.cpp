// A rank is killed or stopped at a random moment of training with shards. The survivors name it,
// and each has the parameters of a complete step.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/flat/walk.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/adam.h"

namespace lockstep {
namespace {

constexpr int kSize = 3;
constexpr int kVictim = 1;
constexpr int kSteps = 30;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("wide", wide);
    register_module("head", head);
    fill(*this, 1);
  }
  at::Tensor loss(int rank, int step) {
    return head->forward(torch::tanh(wide->forward(batch_of(rank, step, 4, 64)))).square().mean();
  }
  torch::nn::Linear wide{64, 3000};
  torch::nn::Linear head{3000, 8};
};
TORCH_MODULE(Net);

std::uint64_t digest_of_values(const FlatParameters& flat) {
  std::uint64_t all = 0;
  for (const auto& parameter : flat.parameters()) {
    all = all * 31 + digest_of(parameter.tensor.detach());
  }
  return all;
}

// The digests after each step, with all ranks alive.
std::vector<std::uint64_t> undisturbed(int steps) {
  std::vector<std::uint64_t> digests;
  with_groups(kSize, [&](ProcessGroup& group) {
    Net net;
    Ddp ddp(*net, group);
    AdamW optimizer(ddp.flat(), {.lr = 1e-2});
    if (group.rank() == 0) digests.push_back(digest_of_values(ddp.flat()));
    for (int step = 0; step < steps; ++step) {
      net->loss(group.rank(), step).backward();
      optimizer.step();
      optimizer.zero_grad();
      if (group.rank() == 0) digests.push_back(digest_of_values(ddp.flat()));
    }
  });
  return digests;
}

struct Loss {
  int signal = SIGKILL;
  Shard shard = Shard::optimizer;
  Copies copies = Copies::per_rank;
  int in_step = 3;
  std::chrono::microseconds after{0};  // from the begin of that step
};

void train(int rank, const Loss& loss) {
  const auto expected = undisturbed(kSteps);
  const auto world = world_of_processes(rank, kSize);
  const ProcessGroup group(world, {.timeout = std::chrono::seconds(3)});
  const auto pids = gather_values(group, static_cast<std::int64_t>(::getpid()));
  Net net;
  Ddp ddp(*net, group, {.bucket_bytes = 100'000, .shard = loss.shard, .copies = loss.copies});
  AdamW optimizer(ddp.flat(), {.lr = 1e-2});
  group.barrier().wait();
  std::jthread hit;
  int step = 0;
  try {
    for (; step < kSteps; ++step) {
      if (rank == kVictim && step == loss.in_step) {
        hit = std::jthread([&loss] {
          std::this_thread::sleep_for(loss.after);
          ::kill(::getpid(), loss.signal);
        });
      }
      net->loss(rank, step).backward();
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_EQ(digest_of_values(ddp.flat()), expected[static_cast<std::size_t>(step) + 1]) << step;
    }
    if (hit.joinable()) hit.join();
    group.barrier().wait();
    ADD_FAILURE() << "no PeerError";
  } catch (const PeerError& error) {
    if (rank == kVictim) return;  // it was stopped, and the others have given it up
    EXPECT_EQ(error.rank(), kVictim) << error.what();
  }
  // A rank that is lost when all ranks have their new values leaves those.
  const auto before = expected[static_cast<std::size_t>(step)];
  const auto after = expected[static_cast<std::size_t>(step) + 1];
  const auto found = digest_of_values(ddp.flat());
  EXPECT_TRUE(found == before || found == after) << "in step " << step;
  ::printf("lost in step %d, %s values\n", step, found == before ? "old" : "new");
  if (loss.signal != SIGSTOP) return;
  ::kill(static_cast<pid_t>(pids[kVictim]), SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(digest_of_values(ddp.flat()), found) << "the rank that woke up has written nothing";
}

class LostRank : public ::testing::TestWithParam<Copies> {};
INSTANTIATE_TEST_SUITE_P(Copies, LostRank, ::testing::Values(Copies::per_rank, Copies::per_host));

void lose(const Loss& loss) {
  const auto outcomes =
      testing::run_ranks_as_processes(kSize, [&](testing::Rank& self) { train(self.rank(), loss); },
                                      {.expect = testing::Expect::anything});
  for (int rank = 0; rank < kSize; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == kVictim && loss.signal == SIGKILL) {
      EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
    } else {
      EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
    }
  }
}

TEST_P(LostRank, LeavesSurvivorsACompleteStep) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  RandomStream random({soak ? std::stoull(*soak) : 24, random_purpose("lost ranks")}, 0, 0);
  const int rounds = soak ? 200 : 5;
  for (int round = 0; round < rounds; ++round) {
    const Loss loss{.signal = round % 3 == 2 ? SIGSTOP : SIGKILL,
                    .shard = round % 2 == 0 ? Shard::optimizer : Shard::gradients,
                    .copies = GetParam(),
                    .in_step = static_cast<int>(2 + random.below(8)),
                    .after = std::chrono::microseconds(random.below(6000))};
    SCOPED_TRACE(fmt::format("step {}, after {} us", loss.in_step, loss.after.count()));
    lose(loss);
  }
}

}  // namespace
}  // namespace lockstep
