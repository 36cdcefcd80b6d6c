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

#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/sgd.h"
#include "test_sharded_net_internal.h"

namespace lockstep {
namespace {

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

void run_step(ShardedNet& net, Ddp& ddp, FlatOptimizer& optimizer, GradScaler& scaler,
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
  ShardedNet net;
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
  result.parameters = copies_of_parameters(*net);
  for (const auto& [name, tensor] : optimizer->named_tensors()) result.state[name] = tensor.clone();
  result.shards = optimizer->sharded_tensors();
  return result;
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

}  // namespace
}  // namespace lockstep
