// Sixteen partial sums per block of elements, as on the host (squares.cpp): a half-warp has one
// block, and each of its lanes one of the sums. The additions of a lane depend on each other, and
// there are few blocks, so each lane loads the next batch of elements before it adds the last one.
#include <algorithm>

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

// Ends of ranges, as an argument of the kernel.
constexpr unsigned kMostEnds = 256;
struct RangeEnds {
  std::uint32_t end[kMostEnds];
  unsigned size = 0;
};

// The order of additions is that of the host, so one thread adds. The others fetch for it.
__device__ double sum_in_order(const double* sums, std::size_t begin, std::size_t end) {
  __shared__ double near[kThreads];
  double sum = 0;
  for (; begin < end; begin += kThreads) {
    const auto here = min(static_cast<std::size_t>(kThreads), end - begin);
    if (threadIdx.x < here) near[threadIdx.x] = sums[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (std::size_t i = 0; i < here; ++i) sum += near[i];
    }
    __syncthreads();
  }
  return sum;
}

__global__ void norm(const double* sums, const __grid_constant__ RangeEnds ends,
                     std::uint32_t begin, double max_norm, DeviceNorm* result) {
  double total = begin == 0 ? 0 : result->total;
  for (unsigned range = 0; range < ends.size; ++range) {
    total += sum_in_order(sums, begin, ends.end[range]);
    begin = ends.end[range];
  }
  if (threadIdx.x != 0) return;
  const double root = sqrt(total);
  *result = {total, root, max_norm / (root + 1e-6)};
}

}  // namespace

void launch_norm(const double* sums, std::span<const std::uint32_t> range_ends, double max_norm,
                 DeviceNorm* result, DeviceStream stream) {
  std::uint32_t begin = 0;
  do {
    RangeEnds ends;
    ends.size = static_cast<unsigned>(std::min<std::size_t>(kMostEnds, range_ends.size()));
    std::copy_n(range_ends.begin(), ends.size, ends.end);
    norm<<<1, kThreads, 0, cuda_stream(stream)>>>(sums, ends, begin, max_norm, result);
    expect_launched("a norm");
    if (ends.size > 0) begin = ends.end[ends.size - 1];
    range_ends = range_ends.subspan(ends.size);
  } while (!range_ends.empty());
}

template <typename Stored>
void launch_squares(const Stored* values, std::size_t count, double* sums, DeviceStream stream) {
  if (count == 0) return;
  constexpr auto kPerBlock = kSquaresBlock * (kSumThreads / kLanes);
  squares<<<blocks_of(count, kPerBlock), kSumThreads, 0, cuda_stream(stream)>>>(values, count,
                                                                                sums);
  expect_launched("a sum of squares");
}

template void launch_squares(const float*, std::size_t, double*, DeviceStream);
template void launch_squares(const double*, std::size_t, double*, DeviceStream);
template void launch_squares(const Float16*, std::size_t, double*, DeviceStream);
template void launch_squares(const BFloat16*, std::size_t, double*, DeviceStream);

}  // namespace lockstep
