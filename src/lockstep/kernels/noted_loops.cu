// Passes that copy, add, multiply and search gradients (noted_loops.h, for device memory).
#include <algorithm>

#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/pack_internal.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kPassChunk = 4096;  // elements per block

template <typename Stored>
__device__ bool is_finite(Stored value) {
  return isfinite(widened(value));
}

// Calls visit(i) for the elements [begin, begin + kPassChunk) below `end` that this block has.
template <typename Visit>
__device__ void for_each_in_chunk(std::size_t begin, std::size_t end, const Visit& visit) {
  const auto stop = min(begin + kPassChunk, end);
#pragma unroll 4
  for (std::size_t i = begin + threadIdx.x; i < stop; i += kThreads) visit(i);
}

__device__ bool is_in_slot(const DeviceSlots& slots, std::size_t value) {
  const auto element = value / slots.width;
  std::size_t low = 0;
  std::size_t high = slots.size;
  while (low < high) {  // the first slot that ends behind the element
    const auto middle = (low + high) / 2;
    if (slots.table[middle].end <= element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < slots.size && slots.table[low].begin <= element;
}

template <typename Stored>
__global__ void clip(Stored* values, std::size_t begin, std::size_t end, DeviceSlots slots,
                     const DeviceNorm* norm) {
  const double factor = norm->clip_factor;
  if (factor >= 1) return;
  const auto by = static_cast<WideOf<Stored>>(factor);
  const bool is_plain = isfinite(factor);  // padding is zero and stays zero
  for_each_in_chunk(begin + static_cast<std::size_t>(blockIdx.x) * kPassChunk, end,
                    [&](std::size_t i) {
                      if (!is_plain && !is_in_slot(slots, i)) return;
                      values[i - begin] = narrowed<Stored>(widened(values[i - begin]) * by);
                    });
}

// All threads that write the flag write 1: no atomic is needed, here and below.
template <typename Stored>
__global__ void find_non_finite(const Stored* values, std::size_t count, std::uint32_t* found) {
  bool has_found = false;
  for_each_in_chunk(static_cast<std::size_t>(blockIdx.x) * kPassChunk, count,
                    [&](std::size_t i) { has_found |= !is_finite(values[i]); });
  if (has_found) *found = 1;
}

template <typename Stored>
__global__ void unscale(Stored* values, std::size_t count, DeviceScaler* scaler) {
  // Rounded twice, as on the host and in PyTorch.
  const auto by =
      static_cast<WideOf<Stored>>(static_cast<float>(1.0 / static_cast<double>(scaler->scale)));
  bool has_found = false;
  for_each_in_chunk(static_cast<std::size_t>(blockIdx.x) * kPassChunk, count, [&](std::size_t i) {
    has_found |= !is_finite(values[i]);
    values[i] = narrowed<Stored>(widened(values[i]) * by);
  });
  if (has_found) scaler->found = 1;
}

__global__ void update(DeviceScaler* scaler, double growth_factor, double backoff_factor,
                       std::int64_t growth_interval) {
  auto now = *scaler;
  if (now.found != 0) {
    ++now.skipped;
    now.scale = static_cast<float>(now.scale * backoff_factor);
    now.growing = 0;
  } else if (++now.growing >= growth_interval) {
    const auto grown = static_cast<float>(now.scale * growth_factor);
    if (isfinite(grown)) now.scale = grown;
    now.growing = 0;
  }
  now.found = 0;
  *scaler = now;
}

struct GatherEntry {
  const void* from;
  void* to;
  std::uint32_t count;
  std::uint32_t first_block;
  std::uint32_t parameter;
  std::uint32_t adds;
};

template <unsigned Capacity>
struct GatherTable {
  unsigned size = 0;
  GatherEntry entry[Capacity];
};

template <typename Stored>
__device__ void write_gathered(Stored& to, Stored from, bool adds, bool& has_found) {
  if (adds) from = narrowed<Stored>(widened(to) + widened(from));
  to = from;
  has_found |= !is_finite(from);
}

// A block finds its entry by its index: the blocks of an entry follow each other.
template <typename Stored, unsigned Capacity>
__global__ void gather(const __grid_constant__ GatherTable<Capacity> table,
                       std::uint32_t* non_finite) {
  unsigned low = 0;
  unsigned high = table.size;
  while (high - low > 1) {
    const auto middle = (low + high) / 2;
    (table.entry[middle].first_block <= blockIdx.x ? low : high) = middle;
  }
  const auto& entry = table.entry[low];
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x - entry.first_block) * kPassChunk;
  const auto* const from = static_cast<const Stored*>(entry.from) + begin;
  auto* const to = static_cast<Stored*>(entry.to) + begin;
  const auto count = static_cast<std::uint32_t>(min(std::size_t{kPassChunk}, entry.count - begin));
  const bool adds = entry.adds != 0;
  bool has_found = false;
  const std::uint32_t packs = are_packed(from, to) ? count / kPack : 0;
#pragma unroll 2
  for (std::uint32_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const auto source = load_pack(from, pack);
    Pack<Stored> target{};
    if (adds) target = load_pack(to, pack);
#pragma unroll
    for (std::uint32_t i = 0; i < kPack; ++i) {
      write_gathered(target.element[i], source.element[i], adds, has_found);
    }
    store_pack(to, pack, target);
  }
  for (std::uint32_t i = packs * kPack + threadIdx.x; i < count; i += kThreads) {
    write_gathered(to[i], from[i], adds, has_found);
  }
  if (has_found) non_finite[entry.parameter] = 1;
}

// A small table is a smaller argument to copy at each launch.
template <typename Stored, unsigned Capacity>
void gather_with(std::span<const GatheredGradient> gradients, std::uint32_t* non_finite,
                 DeviceStream stream) {
  GatherTable<Capacity> table;
  unsigned blocks = 0;
  for (const auto& gradient : gradients) {
    if (gradient.count == 0) continue;
    table.entry[table.size++] = {gradient.from, gradient.to,        gradient.count,
                                 blocks,        gradient.parameter, gradient.adds ? 1U : 0U};
    blocks += blocks_of(gradient.count, kPassChunk);
  }
  if (blocks == 0) return;
  gather<Stored, Capacity><<<blocks, kThreads, 0, cuda_stream(stream)>>>(table, non_finite);
  expect_launched("a copy of gradients");
}

}  // namespace

template <typename Stored>
void launch_clip(Stored* values, std::size_t begin, std::size_t end, DeviceSlots slots,
                 const DeviceNorm* norm, DeviceStream stream) {
  if (begin >= end) return;
  clip<<<blocks_of(end - begin, kPassChunk), kThreads, 0, cuda_stream(stream)>>>(values, begin, end,
                                                                                 slots, norm);
  expect_launched("clipping");
}

template <typename Stored>
void launch_find_non_finite(const Stored* values, std::size_t count, std::uint32_t* found,
                            DeviceStream stream) {
  if (count == 0) return;
  find_non_finite<<<blocks_of(count, kPassChunk), kThreads, 0, cuda_stream(stream)>>>(values, count,
                                                                                      found);
  expect_launched("a search for non-finite values");
}

template <typename Stored>
void launch_unscale(Stored* values, std::size_t count, DeviceScaler* scaler, DeviceStream stream) {
  if (count == 0) return;
  unscale<<<blocks_of(count, kPassChunk), kThreads, 0, cuda_stream(stream)>>>(values, count,
                                                                              scaler);
  expect_launched("unscaling");
}

void launch_scaler_update(DeviceScaler* scaler, double growth_factor, double backoff_factor,
                          std::int64_t growth_interval, DeviceStream stream) {
  update<<<1, 1, 0, cuda_stream(stream)>>>(scaler, growth_factor, backoff_factor, growth_interval);
  expect_launched("an update of the loss scale");
}

template <typename Stored>
void launch_gather(std::span<const GatheredGradient> gradients, std::uint32_t* non_finite,
                   DeviceStream stream) {
  constexpr unsigned kFew = 100;
  while (!gradients.empty()) {
    const auto part = gradients.first(std::min(gradients.size(), kMostGathered));
    if (part.size() <= kFew) {
      gather_with<Stored, kFew>(part, non_finite, stream);
    } else {
      gather_with<Stored, kMostGathered>(part, non_finite, stream);
    }
    gradients = gradients.subspan(part.size());
  }
}

template void launch_clip(float*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(double*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(Float16*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(BFloat16*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_find_non_finite(const float*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const double*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const Float16*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const BFloat16*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_unscale(float*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(double*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(Float16*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(BFloat16*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_gather<float>(std::span<const GatheredGradient>, std::uint32_t*, DeviceStream);
template void launch_gather<double>(std::span<const GatheredGradient>, std::uint32_t*,
                                    DeviceStream);
template void launch_gather<Float16>(std::span<const GatheredGradient>, std::uint32_t*,
                                     DeviceStream);
template void launch_gather<BFloat16>(std::span<const GatheredGradient>, std::uint32_t*,
                                      DeviceStream);

}  // namespace lockstep
