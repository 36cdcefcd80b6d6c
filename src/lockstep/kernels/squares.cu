// Sums of squares in the order of squares.h: a half-warp has one cell, and each of its threads one
// lane of it. A block of threads adds the cells of one run.
#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

constexpr unsigned kBatch = 16;         // loads in flight per lane
constexpr unsigned kCellThreads = 128;  // 8 cells per block of threads
static_assert(kCellLanes == 16, "a half-warp");
static_assert(kTotalLanes == kThreads);

struct HalfWarp {
  unsigned lane;
  unsigned mask;  // its threads in the warp

  __device__ HalfWarp()
      : lane(threadIdx.x % kCellLanes),
        mask(threadIdx.x % 32 < kCellLanes ? 0xFFFFU : 0xFFFF0000U) {}

  // The number of lanes for which `holds`.
  __device__ unsigned count(bool holds) const { return __popc(__ballot_sync(mask, holds)); }
};

// The last slot that begins at or before the cell of `key`. The lanes probe 16 slots at a time.
__device__ std::size_t slot_of(const DeviceSlots& slots, std::size_t cell, std::uint64_t key,
                               const HalfWarp& half) {
  std::size_t first = 0;
  auto left = slots.size;
  while (left > 1) {
    const auto step = (left + kCellLanes - 1) / kCellLanes;
    const auto behind = half.lane * step;
    const bool is_before =
        behind < left &&
        first + behind + slots.table[first + behind].begin * slots.width / cell <= key;
    // Keys ascend: the lanes for which this holds are the first ones. It holds for lane 0, unless
    // the key is before all slots.
    const auto lanes = half.count(is_before);
    const auto skipped = (lanes == 0 ? 0 : lanes - 1) * step;
    first += skipped;
    left = min(step, left - skipped);
  }
  return first;
}

// The squares of elements lane, lane + 16, … of `count` elements.
template <typename Stored>
__device__ double lane_sum(const Stored* __restrict__ values, std::uint32_t count, unsigned lane) {
  constexpr std::uint32_t kStride = kBatch * kCellLanes;
  double sum = 0;
  const auto add = [&](Stored element) {
    const auto value = static_cast<double>(widened(element));
    sum += value * value;
  };
  std::uint32_t i = lane;
  for (; i - lane + kStride <= count; i += kStride) {
    Stored batch[kBatch];
#pragma unroll
    for (unsigned j = 0; j < kBatch; ++j) batch[j] = values[i + j * kCellLanes];
#pragma unroll
    for (unsigned j = 0; j < kBatch; ++j) add(batch[j]);
  }
  for (; i < count; i += kCellLanes) add(values[i]);
  return sum;
}

template <typename Stored>
__global__ void squares(const Stored* __restrict__ values, std::size_t begin, std::size_t count,
                        DeviceSlots slots, DeviceCells cells) {
  constexpr auto kCell = kCellElements<Stored>;
  const HalfWarp half;
  const auto index =
      (static_cast<std::size_t>(blockIdx.x) * kCellThreads + threadIdx.x) / kCellLanes;
  if (index >= cells.size) return;
  const auto key = cells.first_key + index;
  const auto number = slot_of(slots, kCell, key, half);
  if (number > key) return;
  const auto block = key - number;
  const auto slot = slots.table[number];
  const auto first = max(max(slot.begin * slots.width, block * kCell), begin);
  const auto end = min(min(slot.end * slots.width, (block + 1) * kCell), begin + count);
  if (first >= end) return;
  auto sum = lane_sum(values + (first - begin), static_cast<std::uint32_t>(end - first), half.lane);
  for (unsigned other = kCellLanes / 2; other > 0; other /= 2) {
    sum += __shfl_down_sync(half.mask, sum, other, kCellLanes);
  }
  if (half.lane == 0) cells.sums[index] = sum;
}

// The sum of `count` numbers in kThreads lanes. Valid in thread 0.
__device__ double sum_in_lanes(const double* numbers, std::size_t count) {
  __shared__ double lanes[kThreads];
  double sum = 0;
#pragma unroll 4
  for (std::size_t i = threadIdx.x; i < count; i += kThreads) sum += numbers[i];
  lanes[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  return lanes[0];
}

__global__ void add_runs(const double* cells, std::size_t count, double* runs) {
  const auto begin = static_cast<std::size_t>(blockIdx.x) * kTotalRun;
  const auto sum = sum_in_lanes(cells + begin, min(kTotalRun, count - begin));
  if (threadIdx.x == 0) runs[blockIdx.x] = sum;
}

__global__ void norm(const double* sums, std::size_t count, double max_norm, DeviceNorm* result) {
  const auto total = sum_in_lanes(sums, count);
  if (threadIdx.x != 0) return;
  const double root = sqrt(total);
  *result = {total, root, max_norm / (root + 1e-6)};
}

}  // namespace

void launch_norm(std::span<const double> cells, double* runs, double max_norm, DeviceNorm* result,
                 DeviceStream stream) {
  const auto* sums = cells.data();
  auto count = cells.size();
  if (count > kTotalRun) {
    const auto num = num_runs(count);
    add_runs<<<static_cast<unsigned>(num), kThreads, 0, cuda_stream(stream)>>>(sums, count, runs);
    expect_launched("a sum of cells");
    sums = runs;
    count = num;
  }
  norm<<<1, kThreads, 0, cuda_stream(stream)>>>(sums, count, max_norm, result);
  expect_launched("a norm");
}

template <typename Stored>
void launch_cells(const Stored* values, std::size_t begin, std::size_t count, DeviceSlots slots,
                  const DeviceCells& cells, DeviceStream stream) {
  if (cells.size == 0 || slots.size == 0) return;
  constexpr auto kPerBlock = kCellThreads / kCellLanes;
  squares<<<blocks_of(cells.size, kPerBlock), kCellThreads, 0, cuda_stream(stream)>>>(
      values, begin, count, slots, cells);
  expect_launched("a sum of squares");
}

template void launch_cells(const float*, std::size_t, std::size_t, DeviceSlots, const DeviceCells&,
                           DeviceStream);
template void launch_cells(const double*, std::size_t, std::size_t, DeviceSlots, const DeviceCells&,
                           DeviceStream);
template void launch_cells(const Float16*, std::size_t, std::size_t, DeviceSlots,
                           const DeviceCells&, DeviceStream);
template void launch_cells(const BFloat16*, std::size_t, std::size_t, DeviceSlots,
                           const DeviceCells&, DeviceStream);

}  // namespace lockstep
