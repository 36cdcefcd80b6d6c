#include <algorithm>

#include "lockstep/kernels/digest_mix_internal.h"
#include "lockstep/kernels/launch_internal.h"

namespace lockstep {
namespace {

__global__ void digest(const std::byte* memory, std::size_t bytes, std::uint64_t position,
                       unsigned long long* sum) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(memory);
  const auto whole = bytes / kDigestWord;
  std::uint64_t own = 0;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < whole;
       i += stride) {
    own += digest_mix(words[i] ^ ((position + i * kDigestWord + 1) * kGolden));
  }
  const auto tail = bytes % kDigestWord;
  if (tail != 0 && blockIdx.x == 0 && threadIdx.x == 0) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < tail; ++i) {
      word |= static_cast<std::uint64_t>(memory[whole * kDigestWord + i]) << (8 * i);
    }
    own += digest_mix(word ^ ((position + whole * kDigestWord + 1 + kDigestWord - tail) * kGolden));
  }
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_down_sync(~0U, own, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, static_cast<unsigned long long>(own));
}

}  // namespace

void launch_digest(const std::byte* memory, std::size_t bytes, std::uint64_t position,
                   std::uint64_t* sum, DeviceStream stream) {
  constexpr std::size_t kPerBlock = kThreads * kDigestWord * 8;
  constexpr std::size_t kMostBlocks = 4096;
  const auto blocks = std::min(kMostBlocks, bytes / kPerBlock + 1);
  digest<<<static_cast<unsigned>(blocks), kThreads, 0, cuda_stream(stream)>>>(
      memory, bytes, position, reinterpret_cast<unsigned long long*>(sum));
  expect_launched("a digest");
}

}  // namespace lockstep
