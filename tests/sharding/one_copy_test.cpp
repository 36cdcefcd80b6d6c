// One copy of the parameters per host, and a program that changes what it sees of it: each change
// is reported, none is applied, and none stays in the memory of a rank.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/collectives/shared_region.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/sgd.h"
#include "test_sharded_net_internal.h"

namespace lockstep {
namespace {

void backward(ShardedNet& net, int rank, int step) {
  net->forward(images(rank, step, at::kFloat), true).square().mean().backward();
}

// Autograd does not count these changes.
void clamp_data(ShardedNet& net) {
  for (auto& parameter : net->parameters()) parameter.data().clamp_(-0.01, 0.01);
}

void load_again(ShardedNet& net) {
  std::stringstream file;
  torch::save(net, file);
  torch::load(net, file);
}

struct Change {
  std::string name;
  std::function<void(ShardedNet&)> make;
  std::string report;
};

const std::vector<Change> kChanges{
    {"mul_", [](ShardedNet& net) { net->head->weight.mul_(2); }, "in place: head.weight."},
    {"init", [](ShardedNet& net) { torch::nn::init::constant_(net->head->weight, 1); },
     "in place: head.weight."},
    {"data().clamp_", clamp_data, "in place: image.weight, "},
    {"load", load_again, "is no longer in registered memory"},
};

void expect_reported_and_undone(const Change& change, Shard shard, const ProcessGroup& group) {
  SCOPED_TRACE(change.name + ", " + name_of(shard, Copies::per_host));
  ShardedNet net;
  fill(*net, 1);
  Ddp ddp(*net, group, {.shard = shard, .copies = Copies::per_host});
  SGD optimizer(ddp.flat(), {.lr = 0.1});
  const auto before = ddp.flat().old_values(0).clone();
  group.barrier().wait();  // no rank has made the change
  {
    const torch::NoGradGuard off;
    change.make(net);
  }
  group.barrier().wait();  // all have
  EXPECT_TRUE(are_same(ddp.flat().old_values(0), before)) << "what all ranks share";
  EXPECT_TRUE(holds(message_of([&] { backward(net, group.rank(), 0); }), change.report));
  EXPECT_TRUE(are_same(ddp.flat().values(0), before)) << "what this rank sees";
}

TEST(OneCopyPerHost, ReportsAndUndoesEachChangeThatAllRanksMake) {
  for (const auto shard : {Shard::optimizer, Shard::gradients}) {
    for (const auto& change : kChanges) {
      with_groups(2,
                  [&](ProcessGroup& group) { expect_reported_and_undone(change, shard, group); });
    }
  }
}

// As programs run: each process has mappings of its own of the one copy.
TEST(OneCopyPerHost, ReportsAndUndoesEachChangeThatAllProcessesMake) {
  constexpr int kSize = 2;
  testing::run_ranks_as_processes(kSize, [](testing::Rank& self) {
    int number = 0;
    for (const auto shard : {Shard::optimizer, Shard::gradients}) {
      for (const auto& change : kChanges) {
        const ProcessGroup group(world_of_processes(self.rank(), kSize, number++));
        expect_reported_and_undone(change, shard, group);
        self.barrier(soon());  // both have ended their calls in this group
      }
    }
  });
}

// The pages that a change has made private would be in use again in every second step.
TEST(OneCopyPerHost, ContinuesAfterAReportAsWithoutTheChange) {
  with_groups(2, [](ProcessGroup& group) {
    const auto run = [&](const std::function<void(ShardedNet&)>& change) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = Copies::per_host});
      SGD optimizer(ddp.flat(), {.lr = 0.1});
      for (int step = 0; step < 6; ++step) {
        if (step == 2) {
          const torch::NoGradGuard off;
          change(net);
        }
        const auto message = message_of([&] { backward(net, group.rank(), step); });
        if (!message.empty()) {
          EXPECT_EQ(step, 2) << message;
          net->zero_grad();
          backward(net, group.rank(), step);
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      return copies_of_parameters(*net);
    };
    const auto undisturbed = run([](ShardedNet&) {});
    for (std::size_t i = 0; i < 3; ++i) {
      const auto found = run(kChanges[i].make);
      for (std::size_t k = 0; k < found.size(); ++k) {
        EXPECT_TRUE(are_same(found[k], undisturbed[k])) << kChanges[i].name << ", " << k;
      }
    }
  });
}

// A change between backward() and the next write is not reported; the write is what stays.
TEST(OneCopyPerHost, ShowsWhatIsWrittenForAllRanksInPlaceOfAnEarlierChange) {
  with_groups(2, [](ProcessGroup& group) {
    ShardedNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.shard = Shard::optimizer, .copies = Copies::per_host});
    SGD optimizer(ddp.flat(), {.lr = 0.1});
    const auto is_all = [&](double value) {
      return torch::equal(ddp.flat().values(0), torch::full_like(ddp.flat().values(0), value));
    };
    backward(net, group.rank(), 0);
    clamp_data(net);
    ddp.write_parameters([&] { ddp.flat().values(0).fill_(2); });
    EXPECT_TRUE(is_all(2));

    clamp_data(net);
    group.barrier().wait();
    shared_memory_of(ddp.flat().values(0)).fill_(3);  // as Run::resume() does
    EXPECT_TRUE(is_all(3));
  });
}

TEST(OneCopyPerHost, ReportsOwnedShardsThatAreNotShared) {
  with_groups(2, [](ProcessGroup& group) {
    for (const auto shard : {Shard::optimizer, Shard::gradients}) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard, .copies = Copies::per_host});
      std::vector<at::Tensor> mine;
      for (const auto& owned : ddp.flat().owned()) mine.push_back(owned.value);
      torch::optim::SGD optimizer(mine, 0.1);
      backward(net, group.rank(), 0);
      optimizer.step();
      ddp.flat().share_values();
      (void)shared_memory_of(ddp.flat().values(0));  // as Run::resume() does
      backward(net, group.rank(), 1);
      backward(net, group.rank(), 2);  // a step that the program leaves out is no mistake
      optimizer.step();
      EXPECT_TRUE(holds(message_of([&] { backward(net, group.rank(), 3); }),
                        "call flat().share_values() on every rank"));
      EXPECT_TRUE(
          holds(message_of([&] { ddp.write_parameters([] {}); }), "call flat().share_values()"));
      ddp.flat().share_values();
      backward(net, group.rank(), 3);
    }
  });
}

// owned() has what write_parameters() has written.
TEST(OwnedShards, AreWrittenByWriteParameters) {
  with_groups(2, [](ProcessGroup& group) {
    const auto run = [&](Shard shard, Copies copies) {
      ShardedNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard, .copies = copies});
      std::vector<at::Tensor> mine;
      for (const auto& owned : ddp.flat().owned()) mine.push_back(owned.value);
      torch::optim::SGD optimizer(mine, 0.1);
      for (int step = 0; step < 3; ++step) {
        backward(net, group.rank(), step);
        ddp.write_parameters([&] {
          for (auto& parameter : net->parameters()) parameter.mul_(0.5);
        });
        optimizer.step();
        ddp.flat().share_values();
        net->zero_grad();
      }
      return copies_of_parameters(*net);
    };
    expect_same_with_shards(run);
  });
}

}  // namespace
}  // namespace lockstep
