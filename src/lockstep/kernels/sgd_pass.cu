#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/sgd_element_internal.h"

namespace lockstep {
namespace {

template <Momentum Kind, bool Decays, bool Nesterov, typename Stored>
__device__ void step_chunk(const SgdStretch<Stored>& arrays, const DeviceChunk& chunk,
                           const SgdStep& step) {
  const SgdFactors<WideOf<Stored>> factors(step);
  const auto part = arrays.part(chunk.begin, chunk.packed_begin, chunk.count);
#pragma unroll 4  // several loads in flight per thread
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    sgd_element<Kind, Decays, Nesterov>(part.values[i], part.values, part.gradients, part.momenta,
                                        part.masters, i, factors);
  }
}

template <Momentum Kind, typename Stored>
__device__ void step_chunk(const SgdStretch<Stored>& arrays, const DeviceChunk& chunk,
                           const SgdStep& step) {
  const bool decays = step.decay != 0;
  if (Kind != Momentum::none && step.nesterov) {
    decays ? step_chunk<Kind, true, true>(arrays, chunk, step)
           : step_chunk<Kind, false, true>(arrays, chunk, step);
  } else {
    decays ? step_chunk<Kind, true, false>(arrays, chunk, step)
           : step_chunk<Kind, false, false>(arrays, chunk, step);
  }
}

template <typename Stored>
__global__ void sgd(SgdStretch<Stored> arrays, const DeviceChunk* chunks, const SgdStep* steps,
                    const std::uint32_t* skip) {
  if (skip != nullptr && *skip != 0) return;
  const auto chunk = chunks[blockIdx.x];
  const auto step = steps[chunk.group];
  switch (momentum_of(step)) {
    case Momentum::none:
      return step_chunk<Momentum::none>(arrays, chunk, step);
    case Momentum::first:
      return step_chunk<Momentum::first>(arrays, chunk, step);
    case Momentum::later:
      return step_chunk<Momentum::later>(arrays, chunk, step);
  }
}

}  // namespace

template <typename Stored>
void launch_sgd(const SgdStretch<Stored>& arrays, DeviceChunks chunks, const SgdStep* steps,
                const std::uint32_t* skip, DeviceStream stream) {
  if (chunks.size == 0) return;
  sgd<<<static_cast<unsigned>(chunks.size), kThreads, 0, cuda_stream(stream)>>>(
      arrays, chunks.table, steps, skip);
  expect_launched("a step of SGD");
}

template void launch_sgd(const SgdStretch<float>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);
template void launch_sgd(const SgdStretch<double>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);
template void launch_sgd(const SgdStretch<BFloat16>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);

}  // namespace lockstep
