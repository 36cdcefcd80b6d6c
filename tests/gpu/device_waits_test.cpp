// A step on a GPU never waits for the device: counted by functions in place of CUDA's
// (count_waits.h). The host waits where a number is read, and only there.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "benchmarks/bars.h"
#include "lockstep/lockstep.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "tests/gpu/count_waits.h"

namespace lockstep {
namespace {

constexpr int kSteps = 20;

class Waiting : public ::testing::Test {
 public:
  // The number of waits of `kSteps` steps, after the first ones.
  static Waits waits_of(const std::function<void(int)>& step) {
    for (int i = 0; i < 5; ++i) step(i);
    torch::cuda::synchronize();
    const auto before = count_waits();
    for (int i = 0; i < kSteps; ++i) step(5 + i);
    const auto after = count_waits();
    return {after.synchronizations - before.synchronizations, after.copies - before.copies,
            after.frees - before.frees};
  }

 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }

  const at::Device gpu{at::kCUDA, 0};
};

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(64, 256),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({256})),
                               torch::nn::GELU(), torch::nn::Dropout(0.1),
                               torch::nn::Linear(256, 256), torch::nn::Linear(256, 10));
}

// The statements of a training loop on one GPU.
struct Loop {
  explicit Loop(at::Device gpu, at::ScalarType the_dtype, at::ScalarType of_parameters = at::kFloat,
                ProcessGroup the_group = ProcessGroup(World::alone()))
      : device(gpu),
        dtype(the_dtype),
        group(std::move(the_group)),
        scaler({.enabled = the_dtype == at::kHalf}) {
    net->to(gpu, of_parameters);
    ddp.emplace(*net, group);
    optimizer.emplace(ddp->flat(), AdamWOptions{.groups = {no_decay_for_biases_and_norms()}});
  }

  void step(int number) {
    seeds.begin_step(number);
    const auto input = host_input.to(device, /*non_blocking=*/true);
    const auto target = host_target.to(device, /*non_blocking=*/true);
    at::Tensor value;
    {
      const Autocast lower(dtype, device.type());
      value =
          torch::cross_entropy_loss(net->forward(input.to(net->parameters()[0].dtype())), target);
    }
    scaler.scale(value).backward();
    scaler.unscale(ddp->flat());
    norm = clip_grad_norm(ddp->flat(), 1.0);
    scaler.step(*optimizer, 1e-3 / (1 + number));
    scaler.update();
    optimizer->zero_grad();
    loss.add(value.detach(), 32);
  }

  at::Device device;
  at::ScalarType dtype;
  ProcessGroup group;
  Seeds seeds{7};
  torch::nn::Sequential net = make_net();
  GradScaler scaler;
  std::optional<Ddp> ddp;
  std::optional<AdamW> optimizer;
  at::Tensor host_input = torch::randn({32, 64}).pin_memory();
  at::Tensor host_target = torch::randint(10, {32}).pin_memory();
  Mean loss;
  Pending<double> norm;
};

TEST_F(Waiting, TheCounterCounts) {
  const auto before = count_waits();
  (void)torch::ones({1}, gpu).item<float>();
  EXPECT_GT(count_waits().all(), before.all());
}

// HostSyncs sees LibTorch's operations; count_waits.h sees CUDA's functions.
TEST_F(Waiting, HostSyncsCountsEveryReadAndNoStep) {
  Loop loop(gpu, at::kBFloat16);
  for (int i = 0; i < 5; ++i) loop.step(i);
  HostSyncs syncs;
  for (int i = 0; i < kSteps; ++i) loop.step(5 + i);
  EXPECT_EQ(syncs.read_and_reset(), 0);
  const auto before = count_waits();
  for (int i = 0; i < 3; ++i) (void)torch::ones({1}, gpu).item<float>();
  EXPECT_EQ(count_waits().all() - before.all(), 3);
  EXPECT_EQ(syncs.read_and_reset(), 3);
  auto x = torch::ones({2}, torch::device(gpu).requires_grad(true));
  x.register_hook([](const at::Tensor& gradient) { (void)gradient.sum().item<float>(); });
  x.sum().backward();
  EXPECT_EQ(syncs.read_and_reset(), 1) << "on autograd's thread";
}

TEST_F(Waiting, NoStepWaitsWithClippingAndAutocast) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    Loop loop(gpu, dtype);
    const auto waits = waits_of([&](int number) { loop.step(number); });
    EXPECT_EQ(waits.synchronizations, 0);
    EXPECT_EQ(waits.copies, 0);
    EXPECT_EQ(waits.frees, 0);
    EXPECT_TRUE(loop.norm.is_on_device());
    const auto before = count_waits();
    EXPECT_GT(loop.loss.value(), 0);
    EXPECT_GT(loop.norm, 0);
    EXPECT_GT(count_waits().all(), before.all()) << "a number that is read is waited for";
  }
}

// As the libraries of CUDA that LibTorch loads call it.
TEST_F(Waiting, TheCounterCountsFunctionsOfTheDriverThatAreLookedUp) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuCtxSynchronize", &found, 12000, cudaEnableDefault,
                                             &result),
            cudaSuccess);
  ASSERT_NE(found, nullptr);
  (void)torch::ones({1}, gpu);  // there is a context
  const auto before = count_waits();
  EXPECT_EQ(reinterpret_cast<int (*)()>(found)(), 0);
  EXPECT_EQ(count_waits().synchronizations, before.synchronizations + 1);
}

TEST_F(Waiting, NoStepWaitsWithParametersOfBFloat16) {
  Loop loop(gpu, at::kBFloat16, at::kBFloat16);
  EXPECT_EQ(waits_of([&](int number) { loop.step(number); }).all(), 0);
}

// In a group, with clipping. `gpu` is that of all its ranks.
Waits waits_in(const ProcessGroup& group, at::Device gpu, at::ScalarType of_parameters) {
  Loop loop(gpu, at::kBFloat16, of_parameters, group);
  return Waiting::waits_of([&](int number) { loop.step(number); });
}

constexpr std::array kParameterTypes{at::kFloat, at::kBFloat16};

void print_waits(const std::string& where) {
  print_bar("waits of the host for the device in " + std::to_string(kSteps) +
                " steps with clipping, autocast and parameters of bfloat16, " + where,
            "0", "0");
}

// NCCL needs a GPU per rank: with one rank its calls take the path of several.
TEST_F(Waiting, NoStepOverNcclWaits) {
  for (const auto dtype : kParameterTypes) {
    const ProcessGroup group(World::alone(), {.backend = Backend::nccl});
    EXPECT_EQ(waits_in(group, gpu, dtype).all(), 0) << dtype;
    EXPECT_EQ(group.backend(gpu), "nccl");
  }
  if (!HasFailure()) print_waits("NCCL, one rank");
}

TEST_F(Waiting, NoStepOverIpcWaits) {
  (void)testing::run_ranks_as_processes(2, [this](testing::Rank& self) {
    const ProcessGroup group(world_of_processes(self.rank(), self.size()));
    for (const auto dtype : kParameterTypes) {
      EXPECT_EQ(waits_in(group, gpu, dtype).all(), 0) << dtype;
    }
    EXPECT_EQ(group.backend(gpu), "ipc");
    group.barrier().wait();
  });
  print_waits("ipc, two ranks");
}

TEST_F(Waiting, NoReplayWaits) {
  Loop loop(gpu, at::kBFloat16);
  CudaGraphStep graph(
      [&](const std::vector<at::Tensor>& batch) {
        at::Tensor value;
        {
          const Autocast lower(at::kBFloat16, at::kCUDA);
          value = torch::cross_entropy_loss(loop.net->forward(batch[0]), batch[1]);
        }
        value.backward();
        clip_grad_norm(loop.ddp->flat(), 1.0);
        loop.optimizer->step();
        loop.optimizer->zero_grad();
        return value;
      },
      {.warmup = 4});
  const auto waits = waits_of([&](int number) {
    loop.optimizer->set_lr(1e-3 / (1 + number));
    loop.loss.add(graph({loop.host_input, loop.host_target}));
  });
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(waits.all(), 0);
}

}  // namespace
}  // namespace lockstep
