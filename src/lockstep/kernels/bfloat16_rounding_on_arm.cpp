// Compiled for processors with the instruction: CMakeLists.txt.
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

#include "lockstep/kernels/bfloat16_rounding.h"

namespace lockstep {

bool rounds_to_bfloat16() noexcept { return (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }

void round_to_bfloat16(const float* from, BFloat16* to, std::size_t count) noexcept {
  constexpr std::size_t kLanes = 8;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto first = vcvtq_low_bf16_f32(vld1q_f32(from + i));
    const auto both = vcvtq_high_bf16_f32(first, vld1q_f32(from + i + kLanes / 2));
    std::memcpy(to + i, &both, sizeof(both));
  }
  for (; i < count; ++i) to[i] = static_cast<BFloat16>(narrow_to_bfloat16(from[i]));
}

}  // namespace lockstep
