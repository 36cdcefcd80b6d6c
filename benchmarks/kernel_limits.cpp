#include "benchmarks/kernel_limits.h"

#include <cmath>

namespace lockstep {

template <InstructionSet Set>
void LimitLoops<Set>::triad(float* a, const float* b, float s, std::size_t count) noexcept {
  float* __restrict out = a;
  const float* __restrict in = b;
  for (std::size_t i = 0; i < count; ++i) out[i] = out[i] + s * in[i];
}

template <InstructionSet Set>
void LimitLoops<Set>::root_and_divide(float* a, std::size_t count, std::size_t turns) noexcept {
  float* __restrict out = a;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < count; ++i) out[i] = 1.0F / std::sqrt(out[i]);
  }
}

template struct LimitLoops<kCompiledFor>;

}  // namespace lockstep
