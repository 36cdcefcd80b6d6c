// A kernel of lockstep on a tensor of LibTorch: the CUDA compiler, the runtime and LibTorch's CUDA
// libraries are compatible.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "add_kernel.h"

TEST(CudaToolchain, OurKernelRunsOnLibTorchsMemory) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU on this machine";
  auto numbers = at::arange(1000, at::device(at::kCUDA).dtype(at::kFloat));
  ASSERT_EQ(add_on_device(numbers.data_ptr<float>(), 1000, 2.0f), 0);
  EXPECT_TRUE(at::equal(numbers.cpu(), at::arange(1000, at::kFloat) + 2));
}
