// A user's program with LibTorch and lockstep, on a GPU where there is one.
#include <ATen/ATen.h>

#include <cstdio>

#include "lockstep/lockstep.h"

int main() {
  lockstep::RandomStream random({.seed = 1, .purpose = lockstep::random_purpose("consumer")}, 0, 0);
  const auto tensor = at::full({2, 3}, static_cast<double>(random.below(10)));
  if (tensor.numel() != 6) return 1;
  if (at::globalContext().hasCUDART() != EXPECTS_CUDA) {
    std::printf("LibTorch's CUDA libraries are %s\n", EXPECTS_CUDA ? "not linked" : "linked");
    return 1;
  }
#ifndef WITHOUT_COLLECTIVES
  const auto world = lockstep::World::alone();
  auto sum = tensor.to(lockstep::device_of(world));
  lockstep::ProcessGroup(world).all_reduce(sum).synchronize();
  if (!sum.cpu().equal(tensor)) return 1;
#endif
  try {
    throw lockstep::UsageError("an error that crosses the library's edge");
  } catch (const lockstep::Error& error) {
    std::printf("consumer works with lockstep %s: caught %s\n", lockstep::kVersion, error.what());
  }
  return 0;
}
