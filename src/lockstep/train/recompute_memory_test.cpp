// The peak memory of recompute, measured by an allocator of this program.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "lockstep/train/recompute.h"

namespace lockstep {
namespace {

// Counts bytes in use, in place of LibTorch's allocator; for one thread.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, at::kCPU};
    // The size is stored in front of the bytes.
    auto* block = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64));
    std::memcpy(block, &bytes, sizeof bytes);
    in_use += static_cast<std::int64_t>(bytes);
    peak = std::max(peak, in_use);
    return {block + 64, block + 64, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

  // The peak of bytes in use while `action` ran, minus the bytes in use before.
  template <typename Action>
  static std::int64_t peak_of(Action action) {
    const auto before = in_use;
    peak = in_use;
    action();
    return peak - before;
  }

 private:
  static void release(void* data) {
    if (data == nullptr) return;
    auto* block = static_cast<std::byte*>(data) - 64;
    std::size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    in_use -= static_cast<std::int64_t>(bytes);
    std::free(block);
  }

  static inline std::int64_t in_use = 0;
  static inline std::int64_t peak = 0;
};

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kRows = 1024;
constexpr int kBlocks = 12;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        up(register_module("up", torch::nn::Linear(kWidth, 4 * kWidth))),
        drop(register_module("drop", torch::nn::Dropout(0.1))),
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& x) { return x + down(drop(torch::gelu(up(norm(x))))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up;
  torch::nn::Dropout drop;
  torch::nn::Linear down;
};
TORCH_MODULE(Block);

// Existing gradients are not counted as activations.
void give_gradients(Block& block) {
  for (auto& parameter : block->parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
  }
}

TEST(RecomputeMemory, IsTheInputsOfAllBlocksAndTheActivationsOfOne) {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
  std::vector<Block> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    blocks.emplace_back();
    give_gradients(blocks.back());
  }
  const auto input = torch::randn({kRows, kWidth}).set_requires_grad(true);
  input.mutable_grad() = torch::zeros_like(input);
  const auto inputs_bytes = kBlocks * static_cast<std::int64_t>(input.nbytes());
  const auto through = [&](bool twice, int count) {
    return CountingAllocator::peak_of([&] {
      auto x = input;
      for (int i = 0; i < count; ++i) {
        auto& block = blocks[static_cast<std::size_t>(i)];
        x = twice ? recompute(block, x) : block(x);
      }
      x.sum().backward();
    });
  };
  (void)through(false, kBlocks);  // allocations that happen once
  const auto one_block = through(false, 1);
  const auto plain = through(false, kBlocks);
  const auto recomputed = through(true, kBlocks);
  std::printf("inputs %ld + one block %ld = %ld bytes; recomputed %ld, plain %ld\n", inputs_bytes,
              one_block, inputs_bytes + one_block, recomputed, plain);
  EXPECT_LE(static_cast<double>(recomputed), 1.1 * static_cast<double>(inputs_bytes + one_block));
  EXPECT_GT(plain, 2 * recomputed) << "the model is too small for this test";
}

}  // namespace
}  // namespace lockstep
