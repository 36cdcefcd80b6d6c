// Sixteen partial sums per block of elements, as on the host (squares.cpp): a half-warp has one
// block, and each of its lanes one of the sums. The additions of a lane depend on each other, and
// there are few blocks, so each lane loads the next batch of elements before it adds the last one.
#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

constexpr unsigned kLanes = 16;
constexpr unsigned kBatch = 32;       // loads in flight per lane
constexpr unsigned kSumThreads = 64;  // few blocks of elements per block of threads

// Elements of one lane, in the order in which it adds them.
template <typename Stored>
struct Batch {
  Stored element[kBatch];

  __device__ void load(const Stored* first) {
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) element[i] = first[i * kLanes];
  }
  __device__ void add_squares(double& sum) const {
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const auto value = static_cast<double>(widened(element[i]));
      sum += value * value;
    }
  }
};

template <typename Stored>
__global__ void squares(const Stored* __restrict__ values, std::size_t count, double* sums) {
  const std::size_t index = (blockIdx.x * kSumThreads + threadIdx.x) / kLanes;
  const unsigned lane = threadIdx.x % kLanes;
  const auto begin = min(index * kSquaresBlock, count);
  const auto length = static_cast<std::uint32_t>(min(kSquaresBlock, count - begin));
  const auto* const first = values + begin + lane;
  constexpr std::uint32_t kStride = kBatch * kLanes;
  const auto batches = length / kStride;
  double sum = 0;
  Batch<Stored> now;
  Batch<Stored> next;
  if (batches > 0) now.load(first);
  for (std::uint32_t i = 1; i < batches; ++i) {
    next.load(first + i * kStride);
    now.add_squares(sum);
    now = next;
  }
  if (batches > 0) now.add_squares(sum);
  for (auto i = batches * kStride + lane; i < length; i += kLanes) {
    const auto value = static_cast<double>(widened(first[i - lane]));
    sum += value * value;
  }
  double whole = 0;
  for (unsigned j = 0; j < kLanes; ++j) whole += __shfl_sync(~0U, sum, static_cast<int>(j), kLanes);
  if (lane == 0 && length > 0) sums[index] = whole;
}

}  // namespace

template <typename Stored>
void launch_squares(const Stored* values, std::size_t count, double* sums, DeviceStream stream) {
  if (count == 0) return;
  constexpr auto kPerBlock = kSquaresBlock * (kSumThreads / kLanes);
  const auto blocks = static_cast<unsigned>((count + kPerBlock - 1) / kPerBlock);
  squares<<<blocks, kSumThreads, 0, cuda_stream(stream)>>>(values, count, sums);
  expect_launched("a sum of squares");
}

template void launch_squares(const float*, std::size_t, double*, DeviceStream);
template void launch_squares(const double*, std::size_t, double*, DeviceStream);
template void launch_squares(const Float16*, std::size_t, double*, DeviceStream);
template void launch_squares(const BFloat16*, std::size_t, double*, DeviceStream);

}  // namespace lockstep
