#include "benchmarks/kernel_limits.h"

#include <bit>
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

template <InstructionSet Set>
void LimitLoops<Set>::encode_halves(const float* values, std::uint16_t* to,
                                    std::size_t count) noexcept {
  std::uint16_t* __restrict out = to;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
}

template <InstructionSet Set>
void LimitLoops<Set>::encode_bytes(const float* values, float* error, std::uint8_t* to,
                                   std::size_t count) noexcept {
  const float* __restrict in = values;
  float* __restrict sums = error;
  std::uint8_t* __restrict out = to;
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = sums[i] + in[i];
    out[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(sums[i]));
  }
}

template <InstructionSet Set>
void LimitLoops<Set>::decode_bytes(const std::uint8_t* from, float* values,
                                   std::size_t count) noexcept {
  float* __restrict out = values;
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(std::uint32_t{from[i]});
}

template struct LimitLoops<kCompiledFor>;

}  // namespace lockstep
