// Ddp with two and four processes on one GPU: replicas stay bit-identical, and the averaged
// gradient is that of one process with the whole batch, up to the order of additions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/flat/walk.h"
#include "lockstep/lockstep.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "models/gpt.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBatch = 32;  // of all ranks together
constexpr int kSteps = 200;

// A model and its loss over rows [begin, end) of a batch, in the mean.
struct Case {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<at::Tensor(torch::nn::Module&, const at::Tensor& rows)> loss;
  std::function<at::Tensor()> batch;
};

at::Tensor forward(torch::nn::Module& net, const at::Tensor& rows) {
  return net.as<torch::nn::SequentialImpl>()->forward(rows);
}

std::vector<Case> cases() {
  const auto of_classes = [](torch::nn::Module& net, const at::Tensor& rows) {
    const auto target = rows.flatten(1).argmax(1) % 10;  // of each row, in any shard
    return torch::cross_entropy_loss(forward(net, rows), target);
  };
  const auto mlp = [] {
    return torch::nn::Sequential(torch::nn::Linear(64, 256), torch::nn::GELU(),
                                 torch::nn::Linear(256, 256), torch::nn::GELU(),
                                 torch::nn::Linear(256, 10))
        .ptr();
  };
  const auto conv = [] {
    return torch::nn::Sequential(
               torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)), torch::nn::ReLU(),
               torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).stride(2)), torch::nn::ReLU(),
               torch::nn::Flatten(), torch::nn::Linear(16 * 7 * 7, 10))
        .ptr();
  };
  const auto gpt = [] {
    return models::Gpt(models::GptOptions{
                           .vocabulary = 128, .context = 32, .layers = 2, .heads = 2, .width = 64})
        .ptr();
  };
  return {{"MLP", mlp, of_classes,
           [] {
             return torch::randn({kBatch, 64});
           }},
          {"conv", conv, of_classes,
           [] {
             return torch::randn({kBatch, 3, 16, 16});
           }},
          {"GPT", gpt,
           [](torch::nn::Module& net, const at::Tensor& rows) {
             const auto logits = net.as<models::GptImpl>()->forward(rows.slice(1, 0, 32));
             return torch::cross_entropy_loss(logits.flatten(0, 1), rows.slice(1, 1, 33).flatten());
           },
           [] {
             return torch::randint(128, {kBatch, 33});
           }}};
}

// The gradients of the mean loss over all `parts` of equal size, one after the other.
at::Tensor gradients(const Case& each, torch::nn::Module& net,
                     const std::vector<at::Tensor>& parts) {
  for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
  for (const auto& part : parts) {
    (each.loss(net, part) / static_cast<double>(parts.size())).backward();
  }
  std::vector<at::Tensor> all;
  for (const auto& parameter : net.parameters()) all.push_back(parameter.grad().flatten().clone());
  return torch::cat(all);
}

std::shared_ptr<torch::nn::Module> made(const Case& each, at::Device device) {
  torch::manual_seed(3);
  auto net = each.make();
  net->to(device);
  return net;
}

// What the order of additions changes: the whole batch against its shards, in one process. The
// average over ranks may differ twice as much, because its additions have one more order.
void expect_average(const Case& each, ProcessGroup& group, const at::Tensor& batch) {
  const auto shards = batch.chunk(group.size());
  auto plain = made(each, batch.device());
  const auto whole = gradients(each, *plain, {batch});
  const auto in_parts = gradients(each, *plain, shards);
  auto net = made(each, batch.device());
  const Ddp ddp(*net, group);
  const auto averaged = gradients(each, *net, {shards[static_cast<std::size_t>(group.rank())]});
  const double expected = (in_parts - whole).norm().item<double>();
  EXPECT_LE((averaged - whole).norm().item<double>(), 2 * expected + 1e-12) << each.name;
  EXPECT_GT(whole.norm().item<double>(), 1e-3) << each.name;
}

void expect_equal_replicas(const Case& each, ProcessGroup& group, const at::Tensor& batch) {
  auto net = made(each, batch.device());
  Ddp ddp(*net, group, {.bucket_bytes = 64 << 10});
  AdamW optimizer(ddp.flat(), {.lr = 1e-3});
  const auto own = batch.chunk(group.size())[static_cast<std::size_t>(group.rank())];
  const double first = each.loss(*net, own).item<double>();
  for (int step = 0; step < kSteps; ++step) {
    at::Tensor loss;
    {
      const Autocast lower(at::kBFloat16, at::kCUDA);
      loss = each.loss(*net, own);
    }
    loss.backward();
    clip_grad_norm(ddp.flat(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_LT(each.loss(*net, own).item<double>(), 0.9 * first) << each.name << " learns";
  auto work = group.barrier({.flags = CallFlags{.equal = digest_of(ddp.flat().values(0))}});
  work.wait();
  EXPECT_TRUE(work.flags().all_equal) << each.name;
}

class SeveralRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SeveralRanks, ::testing::Values(2, 4));

TEST_P(SeveralRanks, OnOneGpuAverageAndStayEqual) {
  testing::run_ranks_as_processes(GetParam(), [](testing::Rank& self) {
    ProcessGroup group(world_of_processes(self.rank(), self.size()));
    for (const auto& each : cases()) {
      torch::manual_seed(7);
      const auto batch = each.batch().to(at::kCUDA);
      self.note("average of " + each.name);
      expect_average(each, group, batch);
      self.note("replicas of " + each.name);
      expect_equal_replicas(each, group, batch);
    }
  });
}

}  // namespace
}  // namespace lockstep
