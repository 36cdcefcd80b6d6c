// Loader with batches on a GPU. The oracle is the loader with batches on the CPU.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMillisecond =
    1'500'000;  // cycles; about 1 ms at the clocks of today's GPUs

TensorDataset make_data() {
  torch::manual_seed(5);
  return TensorDataset({{"input", torch::randn({96, 40'000})}, {"target", torch::arange(96)}});
}

LoaderOptions options_on(at::Device device, int workers) {
  return {.batch = {.local = 8}, .tail = Tail::uneven, .workers = workers, .device = device};
}

class BatchesOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }
  static bool device_is_busy() { return !c10::cuda::getDefaultCUDAStream().query(); }

  const at::Device gpu{at::kCUDA, 0};
  const TensorDataset data = make_data();
};

// Each batch is read late, behind a slow kernel, while the host is many batches ahead. Memory that
// is reused too early, or read before its copy, shows another batch.
TEST_F(BatchesOnDevice, EqualThoseOnTheCpuHoweverSlowTheStepIs) {
  for (const int workers : {0, 1, 3}) {
    Loader on_host(data, options_on(at::kCPU, workers));
    Loader on_device(data, options_on(gpu, workers));
    std::vector<at::Tensor> seen, expected;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : on_host.epoch()) expected.push_back(batch.input().clone());
      for (const auto& batch : on_device.epoch()) {
        EXPECT_EQ(batch.input().device(), gpu);
        at::cuda::sleep(3 * kMillisecond);
        seen.push_back(batch.input().clone());
        EXPECT_EQ(batch.target().size(0), batch.count());
      }
    }
    ASSERT_EQ(seen.size(), expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_TRUE(seen[i].cpu().equal(expected[i])) << workers << " workers, batch " << i;
    }
  }
}

TEST_F(BatchesOnDevice, ThatAreKeptAreNeverWrittenAgain) {
  for (const int workers : {0, 2}) {
    Loader loader(data, options_on(gpu, workers));
    std::vector<Batch> kept;
    for (const auto& batch : loader.steps(30)) kept.push_back(batch);
    for (const auto& batch : kept) {
      EXPECT_TRUE(batch.target().cpu().equal(torch::tensor(batch.samples))) << workers;
    }
  }
}

TEST_F(BatchesOnDevice, AreHandedOutWhileTheDeviceIsBusy) {
  Loader loader(data, options_on(gpu, 0));
  for (int i = 0; i < 8; ++i) (void)loader.next();  // pinned memory is allocated
  torch::cuda::synchronize();
  at::cuda::sleep(1000 * kMillisecond);
  for (int i = 0; i < 8; ++i) (void)loader.next();
  EXPECT_TRUE(device_is_busy()) << "next() waited for the device";
  torch::cuda::synchronize();
}

TEST_F(BatchesOnDevice, AreCopiedWhileTheStepComputes) {
  Loader loader(data, options_on(gpu, 0));
  { const auto first = loader.next(); }
  torch::cuda::synchronize();
  at::cuda::sleep(1000 * kMillisecond);  // the step of the first batch
  const auto second = loader.next();
  at::Tensor seen;
  {
    // A stream that waits neither for the step nor for the copy.
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
    for (int attempt = 0; attempt < 1000 && device_is_busy(); ++attempt) {
      seen = second.target().cpu();
      if (seen.equal(torch::tensor(second.samples))) break;
    }
  }
  EXPECT_TRUE(device_is_busy()) << "the copy waited for the step";
  EXPECT_TRUE(seen.equal(torch::tensor(second.samples)));
  torch::cuda::synchronize();
}

TEST_F(BatchesOnDevice, OfALoaderThatEndsEarlyAreFreedInOrder) {
  for (int round = 0; round < 20; ++round) {
    std::optional<Loader> loader(std::in_place, data, options_on(gpu, 2));
    const auto batch = loader->next();
    loader.reset();  // copies of the batches read ahead may still run
    const auto memory = torch::full({8, 40'000}, 1.0, torch::device(gpu));
    EXPECT_EQ(memory.min().item<float>(), 1.0F);
    EXPECT_TRUE(batch.target().cpu().equal(torch::tensor(batch.samples)));
  }
}

}  // namespace
}  // namespace lockstep
