// Checkpoints of tensors on a GPU. The oracle is the checkpoint of equal tensors on the CPU.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/test_log_internal.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMillisecond =
    1'500'000;  // cycles; about 1 ms at the clocks of today's GPUs

// Tensors as models and optimizers have them: parts of one flat buffer, tensors of their own, an
// empty one, one that is not contiguous, one in 16 bits, and one on the CPU.
struct State {
  explicit State(at::Device device) {
    torch::manual_seed(7);
    const auto flat = torch::randn({30'000'000}).to(device);
    tensors.emplace_back("b", flat.slice(0, 1'000'000, 9'000'001));
    tensors.emplace_back("a", flat.slice(0, 0, 1'000'000).view({1000, 1000}));
    tensors.emplace_back("far", flat.slice(0, 20'000'000));
    tensors.emplace_back("own", torch::randn({3, 5}).to(device));
    tensors.emplace_back("scalar", torch::randn({}).to(device));
    tensors.emplace_back("empty", torch::randn({0, 4}).to(device));
    tensors.emplace_back("turned", torch::randn({300, 200}).to(device).t());
    tensors.emplace_back("half", torch::randn({777}).to(device, at::kBFloat16));
    tensors.emplace_back("on_cpu", torch::randn({100}));
  }
  NamedTensors named_tensors() { return tensors; }
  void change() {
    const torch::NoGradGuard off;
    for (auto& [name, tensor] : tensors) tensor.add_(1);
  }

  NamedTensors tensors;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CheckpointsOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Saves three times; after each save the tensors change at once. `interfere` is called before
  // resume(), which may allocate, and before each save.
  std::string saved_state(
      at::Device device, const std::string& name, const std::function<void()>& interfere = [] {}) {
    State state(device);
    lockstep::Run run(World::alone(), folder_ + "/" + name,
                      {.save_every = 0, .keep = 5, .log = log_.log(0)});
    run.track("state", state);
    interfere();
    (void)run.resume();
    for (int step = 0; step < 3; ++step) {
      (void)run.end_of_step();
      interfere();
      run.save();
      state.change();
    }
    (void)run.end_of_step();
    run.finish();
    std::string all;
    for (int step = 1; step <= 4; ++step) {
      all += contents(folder_ + "/" + name + "/checkpoints/step-" + std::to_string(step) +
                      "/state.safetensors");
    }
    return all;
  }

  const std::string folder_ = ::testing::TempDir() + "device_checkpoints_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                              "_" + std::to_string(::getpid());
  const TestLog log_;
  const at::Device gpu{at::kCUDA, 0};
};

TEST_F(CheckpointsOnDevice, HaveTheBytesOfThoseOnTheCpu) {
  const auto on_cpu = saved_state(at::kCPU, "cpu");
  EXPECT_GT(on_cpu.size(), 4u * 19'000'000 * sizeof(float));
  EXPECT_TRUE(saved_state(gpu, "gpu") == on_cpu);
}

// The tensors change while a slow kernel still delays the copy, and the host is ahead.
TEST_F(CheckpointsOnDevice, HoldTheValuesOfTheirStepHoweverBusyTheDeviceIs) {
  const auto busy = [] { at::cuda::sleep(100 * kMillisecond); };
  EXPECT_TRUE(saved_state(gpu, "busy", busy) == saved_state(at::kCPU, "cpu"));
}

TEST_F(CheckpointsOnDevice, AreTakenWithoutAWaitOfTheHost) {
  State state(gpu);
  lockstep::Run run(World::alone(), folder_, {.save_every = 0, .keep = 5, .log = log_.log(0)});
  run.track("state", state);
  (void)run.resume();
  (void)run.end_of_step();
  run.save();  // allocates
  (void)run.end_of_step();
  run.finish();
  (void)run.end_of_step();
  torch::cuda::synchronize();
  at::cuda::sleep(1000 * kMillisecond);
  run.save();
  EXPECT_FALSE(c10::cuda::getCurrentCUDAStream().query()) << "save() waited for the device";
  run.finish();
}

TEST_F(CheckpointsOnDevice, AreCopiedDirectlyIfDeviceMemoryIsNotSufficientAndSaySoOnce) {
  const auto on_cpu = saved_state(at::kCPU, "cpu");
  c10::cuda::CUDACachingAllocator::emptyCache();
  void* occupied = nullptr;  // all memory but 48 MiB; a copy of the state needs 76 MB
  const auto occupy = [&] {
    std::size_t free = 0, total = 0;
    if (occupied != nullptr || cudaMemGetInfo(&free, &total) != cudaSuccess) return;
    ASSERT_EQ(cudaMalloc(&occupied, free - (std::size_t{48} << 20)), cudaSuccess);
  };
  const auto direct = saved_state(gpu, "direct", occupy);
  ASSERT_EQ(cudaFree(occupied), cudaSuccess);
  EXPECT_TRUE(direct == on_cpu);
  const auto said = log_.text();
  const auto first = said.find("each save waits");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("each save waits", first + 1), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep
