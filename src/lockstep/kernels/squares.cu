// Sixteen partial sums per chunk, as on the host (squares.cpp): a half-warp has one chunk, and each
// of its lanes one of the sums. The additions of a lane depend on each other, and there are few
// chunks, so each lane loads the next batch of elements before it adds the last one.
#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

constexpr unsigned kLanes = 16;
constexpr unsigned kBatch = 32;       // loads in flight per lane
constexpr unsigned kSumThreads = 64;  // few chunks per block: a model has more SMs than chunks

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
__global__ void squares(const Stored* __restrict__ values, const DeviceChunk* chunks,
                        std::size_t size, double* sums) {
  const std::size_t index = (blockIdx.x * kSumThreads + threadIdx.x) / kLanes;
  const unsigned lane = threadIdx.x % kLanes;
  const auto chunk = index < size ? chunks[index] : DeviceChunk{};
  const auto* const first = values + chunk.begin + lane;
  constexpr std::uint32_t kStride = kBatch * kLanes;
  const auto batches = chunk.count / kStride;
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
  for (auto i = batches * kStride + lane; i < chunk.count; i += kLanes) {
    const auto value = static_cast<double>(widened(first[i - lane]));
    sum += value * value;
  }
  double whole = 0;
  for (unsigned j = 0; j < kLanes; ++j) whole += __shfl_sync(~0U, sum, static_cast<int>(j), kLanes);
  if (lane == 0 && index < size) sums[index] = whole;
}

// The order of additions is that of the host, so one thread adds. The others fetch for it.
__global__ void norm(const double* sums, std::size_t count, const std::uint32_t* range_ends,
                     std::size_t num_ranges, double max_norm, DeviceNorm* result) {
  __shared__ double near[kThreads];
  double total = 0;
  double range_sum = 0;
  std::size_t range = 0;
  std::size_t range_end = num_ranges > 0 ? range_ends[0] : count;
  for (std::size_t begin = 0; begin < count; begin += kThreads) {
    const auto here = min(static_cast<std::size_t>(kThreads), count - begin);
    if (threadIdx.x < here) near[threadIdx.x] = sums[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      for (std::size_t i = 0; i < here; ++i) {
        range_sum += near[i];
        if (begin + i + 1 < range_end) continue;
        total += range_sum;
        range_sum = 0;
        range_end = ++range < num_ranges ? range_ends[range] : count + 1;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  result->norm = sqrt(total);
  result->clip_factor = max_norm / (result->norm + 1e-6);
}

}  // namespace

template <typename Stored>
void launch_squares(const Stored* values, DeviceChunks chunks, double* sums, DeviceStream stream) {
  if (chunks.size == 0) return;
  constexpr auto kPerBlock = kSumThreads / kLanes;
  const auto blocks = static_cast<unsigned>((chunks.size + kPerBlock - 1) / kPerBlock);
  squares<<<blocks, kSumThreads, 0, cuda_stream(stream)>>>(values, chunks.table, chunks.size, sums);
  expect_launched("a sum of squares");
}

void launch_norm(const double* sums, std::size_t count, const std::uint32_t* range_ends,
                 std::size_t num_ranges, double max_norm, DeviceNorm* result, DeviceStream stream) {
  norm<<<1, kThreads, 0, cuda_stream(stream)>>>(sums, count, range_ends, num_ranges, max_norm,
                                                result);
  expect_launched("a norm");
}

template void launch_squares(const float*, DeviceChunks, double*, DeviceStream);
template void launch_squares(const double*, DeviceChunks, double*, DeviceStream);
template void launch_squares(const Float16*, DeviceChunks, double*, DeviceStream);
template void launch_squares(const BFloat16*, DeviceChunks, double*, DeviceStream);

}  // namespace lockstep
