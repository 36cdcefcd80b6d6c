// NCCL's header and library have the same version, and a reduction over one GPU works.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>

#include "lockstep/gpu/nccl_types.h"

// lockstep loads NCCL at run time and declares what it uses itself.
static_assert(sizeof(lockstep::NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(lockstep::NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(lockstep::NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(lockstep::NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(lockstep::kNcclSuccess == ncclSuccess);
static_assert(lockstep::kNcclInProgress == ncclInProgress);
static_assert(lockstep::kNcclUint8 == ncclUint8);
static_assert(lockstep::kNcclFloat16 == ncclFloat16);
static_assert(lockstep::kNcclFloat32 == ncclFloat32);
static_assert(lockstep::kNcclFloat64 == ncclFloat64);
static_assert(lockstep::kNcclBfloat16 == ncclBfloat16);
static_assert(lockstep::kNcclSum == ncclSum);
static_assert(lockstep::kNcclAverage == ncclAvg);

TEST(NcclToolchain, ItsConfigurationHasTheMagicNumberThatLockstepUses) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(lockstep::NcclConfig().magic, config.magic);
}

TEST(NcclToolchain, LockstepFindsTheCopyThatIsLoaded) {
  const auto loaded = lockstep::load_nccl();
  ASSERT_TRUE(loaded.functions) << loaded.why;
  int version = 0;
  ASSERT_TRUE(loaded.functions->version(version).ok());
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

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
