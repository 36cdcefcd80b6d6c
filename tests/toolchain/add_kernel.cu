#include "add_kernel.h"

namespace {

__global__ void add(float* numbers, int count, float value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) numbers[i] += value;
}

}  // namespace

int add_on_device(float* numbers, int count, float value) {
  constexpr int threads = 128;
  add<<<(count + threads - 1) / threads, threads>>>(numbers, count, value);
  return static_cast<int>(cudaDeviceSynchronize());
}
