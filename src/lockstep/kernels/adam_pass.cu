// One block per chunk. Each thread of a chunk that is aligned handles packs of four elements, which
// are loaded and stored as vectors: this is what brings the pass to the rate of a copy.
#include "lockstep/kernels/adam_element_internal.h"
#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/pack_internal.h"

namespace lockstep {
namespace {

template <bool FromGradient, bool Decays, typename Stored>
__device__ void step_chunk(const AdamStretch<Stored>& arrays, const DeviceChunk& chunk,
                           const AdamStep& step) {
  using Wide = WideOf<Stored>;
  const AdamFactors<Wide> factors(step);
  const auto part = arrays.part(chunk.begin, chunk.packed_begin, chunk.count);
  const bool is_packed = are_packed(part.values, part.gradients, part.averages, part.squares) &&
                         (part.masters == nullptr || are_packed(part.masters));
  const std::uint32_t packs = is_packed ? chunk.count / kPack : 0;
#pragma unroll 2
  for (std::uint32_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    auto values = load_pack(part.values, pack);
    const auto gradients = load_pack(part.gradients, pack);
    auto averages = load_pack(part.averages, pack);
    auto squares = load_pack(part.squares, pack);
    Pack<Wide> masters{};
    if constexpr (!std::is_same_v<Stored, Wide>) masters = load_pack(part.masters, pack);
#pragma unroll
    for (std::size_t i = 0; i < kPack; ++i) {
      adam_element<FromGradient, Decays>(values.element[i], values.element, gradients.element,
                                         averages.element, squares.element, masters.element, i,
                                         factors);
    }
    store_pack(part.values, pack, values);
    store_pack(part.averages, pack, averages);
    store_pack(part.squares, pack, squares);
    if constexpr (!std::is_same_v<Stored, Wide>) store_pack(part.masters, pack, masters);
  }
  for (std::uint32_t i = packs * kPack + threadIdx.x; i < chunk.count; i += kThreads) {
    adam_element<FromGradient, Decays>(part.values[i], part.values, part.gradients, part.averages,
                                       part.squares, part.masters, i, factors);
  }
}

template <typename Stored>
__global__ void adam(AdamStretch<Stored> arrays, const DeviceChunk* chunks, const AdamStep* steps,
                     const std::uint32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  const auto chunk = chunks[blockIdx.x];
  const auto step = steps[chunk.group];
  const bool decays = step.decay != 0;
  if (moves_from_gradient(step)) {
    decays ? step_chunk<true, true>(arrays, chunk, step)
           : step_chunk<true, false>(arrays, chunk, step);
  } else {
    decays ? step_chunk<false, true>(arrays, chunk, step)
           : step_chunk<false, false>(arrays, chunk, step);
  }
}

}  // namespace

template <typename Stored>
void launch_adam(const AdamStretch<Stored>& arrays, DeviceChunks chunks, const AdamStep* steps,
                 const std::uint32_t* skip, DeviceStream stream) {
  if (chunks.size == 0) return;
  adam<<<static_cast<unsigned>(chunks.size), kThreads, 0, cuda_stream(stream)>>>(
      arrays, chunks.table, steps, skip);
  expect_launched("a step of Adam");
}

template void launch_adam(const AdamStretch<float>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);
template void launch_adam(const AdamStretch<double>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);
template void launch_adam(const AdamStretch<BFloat16>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);

}  // namespace lockstep
