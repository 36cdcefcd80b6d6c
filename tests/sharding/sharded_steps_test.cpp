// Training with DdpOptions::shard gives the parameters, the optimizer's state and the norms of
// plain Ddp, bit for bit: for every number of ranks, optimizer and feature of a step.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/ddp/compress_16bit.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/autocast.h"
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
  double max_norm = 0;         // clips if above 0
  double scale = 0;            // above 0: with a GradScaler with this first scale
  bool is_half = false;        // forward computes in float16
  bool overflows = false;      // the loss of one step
  bool sum_overflows = false;  // in one step the gradients of each rank are finite, their sum not
  bool sits_out = false;
  bool unfreezes = false;
  bool hooked = false;   // gradients are sent in bfloat16
  bool fails = false;    // one backward of one rank
  bool uneven = false;   // only rank 0 uses the branch
  bool is_long = false;  // 20 steps of four ranks and of five
};

struct Result {
  std::vector<at::Tensor> parameters;
  OptimizerState state;
  std::vector<double> norms;
  std::int64_t num_skipped = 0;  // by the scaler
};

at::Tensor loss_of(ShardedNet& net, const at::Tensor& x, bool with_branch, int step,
                   const Setting& setting) {
  at::Tensor loss;
  {
    std::optional<Autocast> lower;
    if (setting.is_half) lower.emplace(at::kHalf, x.device().type());
    loss = net->forward(x, with_branch).to(torch::kFloat).square().mean();
  }
  if (setting.overflows && step == 1) loss = loss * 1e36;
  if (setting.sum_overflows && step == 1) {
    constexpr double kLargeGradient = 3e38;  // the largest float32 is 3.4e38
    loss = loss + net->head->bias.sum() * (kLargeGradient / setting.scale);
  }
  return loss;
}

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
    const auto loss = loss_of(net, x, with_branch, step, setting);
    (setting.scale > 0 ? scaler.scale(loss) : loss).backward();
  }
  if (!ddp.should_step()) return optimizer.zero_grad();
  norms.push_back(ddp.non_finite() ? 1 : 0);
  if (setting.scale > 0) scaler.unscale(ddp.flat());
  if (setting.max_norm > 0) norms.push_back(clip_grad_norm(ddp.flat(), setting.max_norm));
  if (setting.scale > 0) {
    scaler.step(optimizer);
    scaler.update();
    norms.push_back(scaler.current_scale());
  } else {
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
  // From 2^40, the first scale of float16, to 2^22 in two steps.
  GradScaler scaler(
      {.initial_scale = setting.scale > 0 ? setting.scale : 1, .backoff_factor = 0x1p-9});
  Result result;
  const int num_steps = group.size() < 4 ? 7 : setting.is_long ? 20 : 5;
  for (int step = 0; step < num_steps; ++step) {
    if (setting.unfreezes && step == 3) {
      for (auto& parameter : net->frozen->parameters()) parameter.set_requires_grad(true);
    }
    run_step(net, ddp, *optimizer, scaler, group, step, setting, result.norms);
    if (shard != Shard::none) {
      for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  }
  result.parameters = copies_of_parameters(*net);
  result.state = state_of(*optimizer);
  result.num_skipped = scaler.num_skipped();
  return result;
}

std::unique_ptr<FlatOptimizer> sgd(FlatParameters& flat) {
  return std::make_unique<SGD>(flat, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
}

std::vector<Setting> settings() {
  return {
      {.name = "AdamW", .make = adam_w, .is_long = true},
      {.name = "Sgd", .make = sgd, .is_long = true},
      {.name = "Bfloat16",
       .make = adam_w,
       .dtype = at::kBFloat16,
       .max_norm = 0.01,
       .is_long = true},
      {.name = "Clipping", .make = adam_w, .max_norm = 0.01, .is_long = true},
      {.name = "Scaler", .make = adam_w, .max_norm = 0.1, .scale = 1024, .overflows = true},
      // Gradients of activations overflow with the first scales.
      {.name = "Float16", .make = adam_w, .max_norm = 0.1, .scale = 0x1p40, .is_half = true},
      {.name = "SumThatOverflows",
       .make = adam_w,
       .max_norm = 0.1,
       .scale = 1024,
       .sum_overflows = true},
      {.name = "Accumulation", .make = adam_w, .ddp = {.accumulate = 3}, .max_norm = 0.01},
      {.name = "ByCountAndSittingOut",
       .make = adam_w,
       .ddp = {.normalize = Normalize::by_count, .accumulate = 2},
       .max_norm = 0.01,
       .sits_out = true},
      // With one rank step 0 has no samples, and is no step of the optimizer.
      {.name = "ByCountWithAnEmptyRank",
       .make = adam_w,
       .ddp = {.normalize = Normalize::by_count},
       .max_norm = 0.01,
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

void expect_same(const Result& plain, const Result& sharded, const ProcessGroup& group) {
  for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
    EXPECT_TRUE(are_same(plain.parameters[i], sharded.parameters[i])) << i;
  }
  // As bytes: the norm of a step that overflows may be NaN.
  EXPECT_TRUE(are_same(at::tensor(plain.norms), at::tensor(sharded.norms)));
  expect_same_state(plain.state, sharded.state, group);
}

TEST_P(ShardedSteps, HaveTheBitsOfPlainDdp) {
  const auto& setting = GetParam();
  at::globalContext().setDeterministicCuDNN(true);
  const bool on_gpu = test_device().is_cuda();
  for (const int size : on_gpu ? std::vector{1, 2} : std::vector{1, 2, 3, 4, 5}) {
    with_ddp_groups(size, [&](ProcessGroup& group) {
      const auto plain = train(group, setting, Shard::none);
      const bool overflows =
          setting.is_half || setting.overflows || (setting.sum_overflows && size > 1);
      EXPECT_EQ(plain.num_skipped > 0, overflows);
      EXPECT_LT(plain.num_skipped, 6) << "steps without an overflow";
      for (const auto& [shard, copies] : kKinds) {
        if (on_gpu && copies == Copies::per_host) continue;
        SCOPED_TRACE(name_of(shard, copies));
        const auto sharded = train(group, setting, shard, copies);
        expect_same(plain, sharded, group);
      }
    });
  }
}

// One copy per host is for ranks that share memory.
TEST(ShardedStepsOverTcp, HaveTheBitsOfPlainDdp) {
  const Setting setting{
      .name = "Tcp", .make = adam_w, .ddp = {.accumulate = 2}, .max_norm = 0.01, .sits_out = true};
  with_groups(3,
              [&](ProcessGroup& group) {
                const auto plain = train(group, setting, Shard::none);
                for (const auto shard : {Shard::optimizer, Shard::gradients}) {
                  SCOPED_TRACE(name_of(shard, Copies::per_rank));
                  expect_same(plain, train(group, setting, shard), group);
                }
              },
              {.timeout = std::chrono::seconds(20), .backend = Backend::tcp});
}

}  // namespace
}  // namespace lockstep
