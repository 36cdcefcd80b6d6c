// What a program sees of shards: start(), torch::optim over owned(), other groups, one copy per
// host, and the reports of mistakes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/sgd.h"
#include "test_sharded_net_internal.h"

namespace lockstep {
namespace {

// start() while the next backward runs.
TEST(ShardedDdp, AveragesOneBufferWhileBackwardFillsTheOther) {
  for (const int size : {1, 2, 3}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto run = [&](Shard shard, Copies copies) {
        ShardedNet net;
        fill(*net, 1);
        Ddp ddp(
            *net, group,
            {.bucket_bytes = 200 << 10, .gradient_buffers = 2, .shard = shard, .copies = copies});
        SGD optimizer(ddp.flat(), {.lr = 0.1, .momentum = 0.9});
        const auto backward = [&](int step) {
          const auto scope = ddp.no_sync();
          net->forward(images(group.rank(), step, at::kFloat), step % 3 != 1)
              .square()
              .mean()
              .backward();
        };
        backward(0);
        for (int step = 1; step < 7; ++step) {
          auto sync = ddp.start();
          backward(step);
          sync.wait();
          clip_grad_norm(ddp.flat(), 0.5);
          optimizer.step();
          optimizer.zero_grad();
        }
        return copies_of_parameters(*net);
      };
      expect_same_with_shards(run);
    });
  }
}

// New values take the memory of the averages: what would read it must not read them.
TEST(ShardedDdp, UsesTheGradientsUpInAStep) {
  with_groups(2, [](ProcessGroup& group) {
    for (const auto shard : {Shard::optimizer, Shard::gradients}) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard});
      SGD optimizer(ddp.flat(), {.lr = 0.1});
      for (int step = 0; step < 2; ++step) {
        net->forward(images(group.rank(), step, at::kFloat), true).square().mean().backward();
        EXPECT_FALSE(ddp.non_finite());
        optimizer.step();
        EXPECT_TRUE(ddp.should_step()) << "until the next backward";
        EXPECT_TRUE(
            holds(message_of([&] { optimizer.step(); }), "the averaged gradients are gone"));
        EXPECT_TRUE(holds(message_of([&] { clip_grad_norm(ddp.flat(), 1); }), "before step()"));
        optimizer.zero_grad();
      }
    }
  });
}

// A step() without averages, as in loops that do not ask should_step(), changes nothing.
TEST(ShardedDdp, KeepsGradientsThatAreNotAveragedYet) {
  with_groups(2, [](ProcessGroup& group) {
    for (const auto shard : {Shard::optimizer, Shard::gradients}) {
      for (const bool reduces_each : {false, shard == Shard::gradients}) {
        const auto run = [&](bool steps_early) {
          ShardedNet net;
          fill(*net, 1);
          Ddp ddp(*net, group,
                  {.accumulate = 2, .shard = shard, .reduce_each_micro_batch = reduces_each});
          SGD optimizer(ddp.flat(), {.lr = 1e-3});
          for (int micro = 0; micro < 6; ++micro) {
            net->forward(images(group.rank(), micro, at::kFloat), true).square().mean().backward();
            if (steps_early || ddp.should_step()) optimizer.step();
            if (ddp.should_step()) optimizer.zero_grad();
          }
          return copies_of_parameters(*net);
        };
        EXPECT_TRUE(are_equal(run(true), run(false)));
      }
    }
  });
}

// torch::optim over owned(), as documented there.
TEST(OwnedShards, AreUpdatedByOptimizersOfTorch) {
  for (const int size : {1, 2, 4}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto run = [&](Shard shard, Copies copies) {
        ShardedNet net;
        fill(*net, 1);
        Ddp ddp(*net, group, {.shard = shard, .copies = copies});
        std::vector<at::Tensor> mine;
        for (const auto& owned : ddp.flat().owned()) mine.push_back(owned.value);
        torch::optim::AdamW optimizer(mine, 1e-2);
        for (int step = 0; step < 4; ++step) {
          net->forward(images(group.rank(), step, at::kFloat), step % 2 == 0)
              .square()
              .mean()
              .backward();
          optimizer.step();
          ddp.flat().share_values();
          net->zero_grad();
        }
        return copies_of_parameters(*net);
      };
      expect_same_with_shards(run);
    });
  }
}

TEST(OwnedShards, ThatAreNotSharedAreReported) {
  with_groups(2, [](ProcessGroup& group) {
    TestNet net;
    Ddp ddp(*net, group, {.shard = Shard::optimizer});
    std::vector<at::Tensor> mine;
    for (const auto& owned : ddp.flat().owned()) mine.push_back(owned.value);
    torch::optim::SGD optimizer(mine, 0.1);
    std::string message;
    for (int step = 0; step < 4 && message.empty(); ++step) {
      message = message_of([&] {
        net->forward(batch_of(group.rank(), step)).square().mean().backward();
        optimizer.step();
      });
    }
    EXPECT_TRUE(holds(message, "the replicas are no longer equal"));
    EXPECT_TRUE(holds(message, "call flat().share_values()"));
  });
}

// With one copy per rank the optimizer has written over the old values by then.
TEST(OwnedShards, OfAStepInWhichARankIsLostAreReportedOrDropped) {
  for (const auto& kind : kKinds) {
    with_groups(2, [&](ProcessGroup& group) {
      const auto [shard, copies] = kind;
      SCOPED_TRACE(name_of(shard, copies));
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard, .copies = copies});
      std::vector<at::Tensor> mine;
      for (const auto& owned : ddp.flat().owned()) mine.push_back(owned.value);
      torch::optim::SGD optimizer(mine, 0.1);
      const auto before = copies_of_parameters(*net);
      const auto backward = [&] {
        net->forward(images(group.rank(), 0, at::kFloat), true).square().mean().backward();
      };
      backward();
      if (group.rank() == 1) return;
      optimizer.step();
      EXPECT_TRUE(holds(message_of([&] { ddp.flat().share_values(); }), "rank 1"));
      if (copies == Copies::per_host) {
        EXPECT_TRUE(are_equal(copies_of_parameters(*net), before));
        return;
      }
      const std::string mixture = "the parameters are those of two steps";
      EXPECT_TRUE(holds(message_of(backward), mixture));
      EXPECT_TRUE(holds(message_of([&] { ddp.flat().rebind(group); }), mixture));
    });
  }
}

TEST(ShardedDdp, ReportsAnOptimizerThatUpdatesNothing) {
  for (const auto& kind : kKinds) {
    with_groups(2, [&](ProcessGroup& group) {
      const auto [shard, copies] = kind;
      SCOPED_TRACE(name_of(shard, copies));
      TestNet net;
      Ddp ddp(*net, group, {.shard = shard, .copies = copies});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      net->forward(batch_of(group.rank(), 0)).square().mean().backward();
      optimizer.step();
      const auto message =
          message_of([&] { net->forward(batch_of(group.rank(), 1)).square().mean().backward(); });
      EXPECT_TRUE(holds(message, "no optimizer updates the shards"));
      EXPECT_TRUE(holds(message, "lockstep::AdamW(ddp.flat())"));
    });
  }
}

TEST(ShardedDdp, KeepsStateWhenItMovesToAnotherGroupOfTheSameRanks) {
  with_groups(3, [](ProcessGroup& group) {
    const auto run = [&](Shard shard, Copies copies) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard, .copies = copies});
      const auto optimizer = adam_w(ddp.flat());
      for (int step = 0; step < 6; ++step) {
        if (step == 3) ddp.rebind(group.split(0, group.size() - group.rank()));
        net->forward(images(group.rank(), step, at::kFloat), true).square().mean().backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      return copies_of_parameters(*net);
    };
    expect_same_with_shards(run);
  });
}

// As after torch::load: other tensors, with values of which those of rank 0 count.
TEST(ShardedDdp, KeepsStateWhenItAdoptsParametersThatWereReplaced) {
  for (const int size : {1, 3}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto run = [&](Shard shard, Copies copies) {
        ShardedNet net;
        fill(*net, 1);
        Ddp ddp(*net, group, {.shard = shard, .copies = copies});
        const auto optimizer = adam_w(ddp.flat());
        for (int step = 0; step < 6; ++step) {
          if (step == 3) {
            for (auto& parameter : net->parameters()) {
              parameter.set_data(parameter.detach() * (group.rank() + 0.5));
            }
            ddp.adopt();
          }
          net->forward(images(group.rank(), step, at::kFloat), true).square().mean().backward();
          optimizer->step();
          optimizer->zero_grad();
        }
        return copies_of_parameters(*net);
      };
      expect_same_with_shards(run);
    });
  }
}

// In a new world a process may have another number: its shards must not be taken for another's.
TEST(ShardedDdp, KeepsStateWhenRanksHaveOtherNumbersInANewWorld) {
  constexpr int kSize = 3;
  testing::run_ranks_as_processes(kSize, [](testing::Rank& self) {
    const auto run = [&](Shard shard, int number) {
      const ProcessGroup group(world_of_processes(self.rank(), kSize, number));
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard});
      const auto optimizer = adam_w(ddp.flat());
      for (int step = 0; step < 6; ++step) {
        if (step == 3) {
          const int other = (self.rank() + 1) % kSize;
          ddp.rebind(ProcessGroup(world_of_processes(other, kSize, number + 1)));
        }
        net->forward(images(self.rank(), step, at::kFloat), true).square().mean().backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      return copies_of_parameters(*net);
    };
    const auto plain = run(Shard::none, 0);
    const auto sharded = run(Shard::optimizer, 2);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(are_same(plain[i], sharded[i])) << i;
  });
}

// With one copy for all ranks, a change that every rank makes would be applied once per rank.
TEST(OneCopyPerHost, ReportsChangesInPlaceAndAppliesNone) {
  const std::vector<std::pair<std::string, std::function<void(TestNet&)>>> changes{
      {"mul_", [](TestNet& net) { net->second->weight.mul_(2); }},
      {"clamp_", [](TestNet& net) { net->second->weight.clamp_(-0.1, 0.1); }},
      {"init", [](TestNet& net) { torch::nn::init::constant_(net->second->weight, 1); }},
  };
  for (const auto& [name, change] : changes) {
    with_groups(2, [&, &does = change, &what = name](ProcessGroup& group) {
      SCOPED_TRACE(what);
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = Copies::per_host});
      AdamW optimizer(ddp.flat());
      const auto shared = shared_memory_of(net->second->weight);
      const auto before = shared.clone();
      {
        const torch::NoGradGuard off;
        does(net);
      }
      EXPECT_TRUE(are_same(shared, before));
      const auto message =
          message_of([&] { net->forward(batch_of(group.rank(), 0)).square().mean().backward(); });
      EXPECT_TRUE(holds(message, "changed in place: second.weight."));
      EXPECT_TRUE(holds(message, "ddp.write_parameters("));
    });
  }
}

TEST(OneCopyPerHost, ChangesByWriteParametersOnce) {
  for (const auto copies : {Copies::per_rank, Copies::per_host}) {
    with_groups(3, [&](ProcessGroup& group) {
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = copies});
      AdamW optimizer(ddp.flat());
      for (int step = 0; step < 3; ++step) {
        const auto before = net->second->weight.detach().clone();
        ddp.write_parameters([&] { net->second->weight.mul_(2); });
        EXPECT_TRUE(are_same(net->second->weight, before * 2));
        net->forward(batch_of(group.rank(), step)).square().mean().backward();
        optimizer.step();
        optimizer.zero_grad();
      }
    });
  }
}

TEST(OneCopyPerHost, ReportsAFailedWriteOnAllRanks) {
  for (const auto copies : {Copies::per_rank, Copies::per_host}) {
    with_groups(2, [&](ProcessGroup& group) {
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = copies});
      const auto message =
          message_of([&] { ddp.write_parameters([] { throw UsageError("no such file"); }); });
      EXPECT_TRUE(holds(message, group.rank() == 0 ? "no such file" : "rank 0 failed while"));
    });
  }
}

TEST(OneCopyPerHost, NeedsShards) {
  with_groups(1, [](ProcessGroup& group) {
    TestNet net;
    const auto message =
        message_of([&] { const Ddp ddp(*net, group, {.copies = Copies::per_host}); });
    EXPECT_TRUE(holds(message, "Copies::per_host needs shards"));
  });
}

}  // namespace
}  // namespace lockstep
