// Training with DdpOptions::shard gives the parameters, the optimizer's state and the norms of
// plain Ddp, bit for bit: for every number of ranks, optimizer and feature of a step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/sgd.h"

namespace lockstep {
namespace {

// Small and large parameters, some longer than a span's least size, in more buckets than a ring of
// gradients holds; one in channels-last memory; a branch that a step may leave out; a frozen one.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("image", image);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("deep", deep);
    register_module("deeper", deeper);
    register_module("branch", branch);
    register_module("frozen", frozen);
    register_module("head", head);
    const torch::NoGradGuard off;
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    image->weight.set_data(image->weight.contiguous(at::MemoryFormat::ChannelsLast));
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& x, bool with_branch) {
    auto hidden = torch::relu(norm->forward(image->forward(x))).flatten(1);
    hidden = torch::relu(wide->forward(hidden));
    hidden = torch::relu(deeper->forward(torch::relu(deep->forward(hidden))));
    if (with_branch) hidden = hidden + branch->forward(hidden);
    return head->forward(frozen->forward(hidden));
  }
  torch::nn::Conv2d image{torch::nn::Conv2dOptions(3, 8, 3)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear wide{8 * 6 * 6, 300};
  torch::nn::Linear deep{300, 300};
  torch::nn::Linear deeper{300, 300};
  torch::nn::Linear branch{300, 300};
  torch::nn::Linear frozen{300, 20};
  torch::nn::Linear head{20, 3};
};
TORCH_MODULE(Net);

at::Tensor images(int rank, int step, at::ScalarType dtype) {
  return (torch::arange(2 * 3 * 8 * 8, torch::kDouble) * 1.3 + rank * 17 + step * 5)
      .cos()
      .reshape({2, 3, 8, 8})
      .to(dtype)
      .to(test_device());
}

const std::vector<std::pair<Shard, Copies>> kKinds{{Shard::optimizer, Copies::per_rank},
                                                   {Shard::optimizer, Copies::per_host},
                                                   {Shard::gradients, Copies::per_rank},
                                                   {Shard::gradients, Copies::per_host}};

std::string name_of(Shard shard, Copies copies) {
  return std::string(shard == Shard::gradients ? "gradients" : "optimizer") +
         (copies == Copies::per_host ? " per host" : " per rank");
}

using MakeOptimizer = std::function<std::unique_ptr<FlatOptimizer>(FlatParameters&)>;

struct Setting {
  std::string name;
  MakeOptimizer make;
  at::ScalarType dtype = at::kFloat;
  DdpOptions ddp = {};
  double max_norm = 0;  // clips if above 0
  bool scales = false;  // with a GradScaler, whose first steps overflow
  bool sits_out = false;
  bool unfreezes = false;
  bool hooked = false;  // gradients are sent in bfloat16
  bool fails = false;   // one backward of one rank
  bool uneven = false;  // only rank 0 uses the branch
};

struct Result {
  std::vector<at::Tensor> parameters;
  std::map<std::string, at::Tensor> state;
  ShardedTensors shards;
  std::vector<double> norms;
};

void run_step(Net& net, Ddp& ddp, FlatOptimizer& optimizer, GradScaler& scaler,
              const ProcessGroup& group, int step, const Setting& setting,
              std::vector<double>& norms) {
  const bool with_branch = step % 3 != 1 && (!setting.uneven || group.rank() == 0);
  for (int part = 0; part < setting.ddp.accumulate; ++part) {
    if (setting.sits_out && group.rank() == (step + part) % group.size() && group.size() > 1) {
      ddp.sit_out();
      continue;
    }
    if (setting.ddp.normalize == Normalize::by_count) ddp.count(group.rank() + step);
    auto x = images(group.rank(), 10 * step + part, setting.dtype);
    if (setting.fails && step == 2) {
      x.requires_grad_();
      if (group.rank() == 0) {
        x.register_hook([](const at::Tensor&) { throw std::runtime_error("not this batch"); });
      }
      EXPECT_THROW(net->forward(x, with_branch).square().mean().backward(), std::exception);
      return net->zero_grad();
    }
    auto loss = net->forward(x, with_branch).to(torch::kFloat).square().mean();
    if (setting.scales && step == 1) loss = loss * 1e30;
    (setting.scales ? scaler.scale(loss) : loss).backward();
  }
  if (!ddp.should_step()) return optimizer.zero_grad();
  if (setting.scales) scaler.unscale(ddp.flat());
  if (setting.max_norm > 0) norms.push_back(clip_grad_norm(ddp.flat(), setting.max_norm));
  if (setting.scales) {
    scaler.step(optimizer);
    scaler.update();
    norms.push_back(scaler.current_scale());
  } else {
    norms.push_back(ddp.non_finite() ? 1 : 0);
    optimizer.step(0.001 / (1 + step));
  }
  optimizer.zero_grad();
}

Result train(ProcessGroup& group, const Setting& setting, Shard shard,
             Copies copies = Copies::per_rank) {
  Net net;
  fill(*net, group.rank() + 1);
  net->to(setting.dtype);
  auto options = setting.ddp;
  options.shard = shard;
  options.copies = copies;
  options.bucket_bytes = 200 << 10;
  Ddp ddp(*net, group, options);
  if (setting.hooked) ddp.set_hook(compress_bf16());
  const auto optimizer = setting.make(ddp.flat());
  GradScaler scaler({.initial_scale = 1024});
  Result result;
  for (int step = 0; step < 7; ++step) {
    if (setting.unfreezes && step == 3) {
      for (auto& parameter : net->frozen->parameters()) parameter.set_requires_grad(true);
    }
    run_step(net, ddp, *optimizer, scaler, group, step, setting, result.norms);
    if (shard != Shard::none) {
      for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  }
  for (const auto& parameter : net->parameters()) result.parameters.push_back(parameter.clone());
  for (const auto& [name, tensor] : optimizer->named_tensors()) result.state[name] = tensor.clone();
  result.shards = optimizer->sharded_tensors();
  return result;
}

bool are_same(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.contiguous().flatten().view(torch::kByte);
  };
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         torch::equal(bytes(a), bytes(b));
}

void expect_same_state(const Result& plain, const Result& sharded, const ProcessGroup& group) {
  for (const auto& [name, tensor] : sharded.state) {
    ASSERT_TRUE(plain.state.contains(name)) << name;
    EXPECT_TRUE(are_same(plain.state.at(name), tensor)) << name;
  }
  EXPECT_EQ(sharded.state.size() + sharded.shards.size(), plain.state.size());
  for (const auto& tensor : sharded.shards) {
    ASSERT_TRUE(plain.state.contains(tensor.name)) << tensor.name;
    const auto& whole = plain.state.at(tensor.name);
    EXPECT_EQ(whole.sizes().vec(), tensor.sizes);
    std::int64_t count = 0;
    for (const auto& piece : tensor.pieces) {
      EXPECT_TRUE(
          are_same(whole.flatten().narrow(0, piece.begin, piece.values.numel()), piece.values))
          << tensor.name << " from " << piece.begin;
      count += piece.values.numel();
    }
    auto all = torch::full({1}, count, torch::kLong);
    group.all_reduce(all, ReduceOp::sum).wait();
    EXPECT_EQ(all.item<std::int64_t>(), whole.numel()) << tensor.name;
  }
}

std::unique_ptr<FlatOptimizer> adam_w(FlatParameters& flat) {
  return std::make_unique<AdamW>(
      flat, AdamWOptions{.weight_decay = 0.1, .groups = {no_decay_for_biases_and_norms()}});
}
std::unique_ptr<FlatOptimizer> sgd(FlatParameters& flat) {
  return std::make_unique<SGD>(flat, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
}

std::vector<Setting> settings() {
  return {
      {.name = "AdamW", .make = adam_w},
      {.name = "Sgd", .make = sgd},
      {.name = "Bfloat16", .make = adam_w, .dtype = at::kBFloat16, .max_norm = 0.01},
      {.name = "Clipping", .make = adam_w, .max_norm = 0.01},
      {.name = "Scaler", .make = adam_w, .max_norm = 0.1, .scales = true},
      {.name = "Accumulation", .make = adam_w, .ddp = {.accumulate = 3}, .max_norm = 0.01},
      {.name = "ByCountAndSittingOut",
       .make = adam_w,
       .ddp = {.normalize = Normalize::by_count, .accumulate = 2},
       .sits_out = true},
      {.name = "TwoBuffers", .make = sgd, .ddp = {.gradient_buffers = 2}, .max_norm = 0.5},
      {.name = "LateTraining", .make = adam_w, .max_norm = 0.01, .unfreezes = true},
      {.name = "BatchNormAndSittingOut",
       .make = sgd,
       .ddp = {.sync_batch_norm = true},
       .sits_out = true},
      // Ranks that do not use the branch start its bucket late, and meet the others in BatchNorm.
      {.name = "BatchNormAndUnused", .make = sgd, .ddp = {.sync_batch_norm = true}, .uneven = true},
      {.name = "Compressed", .make = sgd, .max_norm = 0.5, .hooked = true},
      {.name = "FailedBackward", .make = sgd, .max_norm = 0.5, .fails = true},
  };
}

class ShardedSteps : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, ShardedSteps, ::testing::ValuesIn(settings()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ShardedSteps, HaveTheBitsOfPlainDdp) {
  const auto& setting = GetParam();
  at::globalContext().setDeterministicCuDNN(true);
  const bool on_gpu = test_device().is_cuda();
  for (const int size : on_gpu ? std::vector{1, 2} : std::vector{1, 2, 3, 5}) {
    with_ddp_groups(size, [&](ProcessGroup& group) {
      const auto plain = train(group, setting, Shard::none);
      for (const auto& [shard, copies] : kKinds) {
        if (on_gpu && copies == Copies::per_host) continue;
        SCOPED_TRACE(name_of(shard, copies));
        const auto sharded = train(group, setting, shard, copies);
        for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
          EXPECT_TRUE(are_same(plain.parameters[i], sharded.parameters[i])) << i;
        }
        EXPECT_EQ(plain.norms, sharded.norms);
        expect_same_state(plain, sharded, group);
      }
    });
  }
}

// start() while the next backward runs.
TEST(ShardedDdp, AveragesOneBufferWhileBackwardFillsTheOther) {
  for (const int size : {1, 2, 3}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto run = [&](Shard shard, Copies copies) {
        Net net;
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
        std::vector<at::Tensor> parameters;
        for (const auto& parameter : net->parameters()) parameters.push_back(parameter.clone());
        return parameters;
      };
      const auto plain = run(Shard::none, Copies::per_rank);
      for (const auto& [shard, copies] : kKinds) {
        const auto sharded = run(shard, copies);
        for (std::size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(are_same(plain[i], sharded[i])) << i << ", " << name_of(shard, copies);
        }
      }
    });
  }
}

// torch::optim over owned(), as documented there.
TEST(OwnedShards, AreUpdatedByOptimizersOfTorch) {
  for (const int size : {1, 2, 4}) {
    with_groups(size, [&](ProcessGroup& group) {
      const auto run = [&](Shard shard, Copies copies) {
        Net net;
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
        std::vector<at::Tensor> parameters;
        for (const auto& parameter : net->parameters()) parameters.push_back(parameter.clone());
        return parameters;
      };
      const auto plain = run(Shard::none, Copies::per_rank);
      for (const auto& [shard, copies] : kKinds) {
        const auto sharded = run(shard, copies);
        for (std::size_t i = 0; i < plain.size(); ++i) {
          EXPECT_TRUE(are_same(plain[i], sharded[i])) << i << ", " << name_of(shard, copies);
        }
      }
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

TEST(ShardedDdp, ReportsAnOptimizerThatUpdatesNothing) {
  with_groups(2, [](ProcessGroup& group) {
    TestNet net;
    Ddp ddp(*net, group, {.shard = Shard::optimizer});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    net->forward(batch_of(group.rank(), 0)).square().mean().backward();
    optimizer.step();
    const auto message =
        message_of([&] { net->forward(batch_of(group.rank(), 1)).square().mean().backward(); });
    EXPECT_TRUE(holds(message, "no optimizer updates the shards"));
    EXPECT_TRUE(holds(message, "lockstep::AdamW(ddp.flat())"));
  });
}

TEST(ShardedDdp, KeepsStateWhenItMovesToAnotherGroupOfTheSameRanks) {
  with_groups(3, [](ProcessGroup& group) {
    const auto run = [&](Shard shard, Copies copies) {
      Net net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.shard = shard, .copies = copies});
      const auto optimizer = adam_w(ddp.flat());
      std::vector<at::Tensor> parameters;
      for (int step = 0; step < 6; ++step) {
        if (step == 3) ddp.rebind(group.split(0, group.size() - group.rank()));
        net->forward(images(group.rank(), step, at::kFloat), true).square().mean().backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      for (const auto& parameter : net->parameters()) parameters.push_back(parameter.clone());
      return parameters;
    };
    const auto plain = run(Shard::none, Copies::per_rank);
    for (const auto& [shard, copies] : kKinds) {
      const auto sharded = run(shard, copies);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(are_same(plain[i], sharded[i])) << i << ", " << name_of(shard, copies);
      }
    }
  });
}

// In a new world a process may have another number: its shards must not be taken for another's.
TEST(ShardedDdp, KeepsStateWhenRanksHaveOtherNumbersInANewWorld) {
  constexpr int kSize = 3;
  testing::run_ranks_as_processes(kSize, [](testing::Rank& self) {
    const auto run = [&](Shard shard, int number) {
      const ProcessGroup group(world_of_processes(self.rank(), kSize, number));
      Net net;
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
      std::vector<at::Tensor> parameters;
      for (const auto& parameter : net->parameters()) parameters.push_back(parameter.clone());
      return parameters;
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
