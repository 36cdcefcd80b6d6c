// NCCL's header and library have the same version, and a reduction over one GPU works.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <nccl.h>

TEST(NcclToolchain, HeaderAndLibraryAreOfOneVersion) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST(NcclToolchain, SumsOverAWorldOfOne) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU on this machine";
  const int device = 0;
  ncclComm_t communicator = nullptr;
  ASSERT_EQ(ncclCommInitAll(&communicator, 1, &device), ncclSuccess);
  auto numbers = at::ones(100, at::device(at::kCUDA).dtype(at::kFloat));
  auto* data = numbers.data_ptr<float>();
  EXPECT_EQ(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, communicator, nullptr), ncclSuccess);
  EXPECT_EQ(numbers.sum().item<float>(), 100.0f);
  EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
}
