// Integers of 8 bits become floats: integer × scale.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __aarch64__
#include <arm_neon.h>
#endif

namespace lockstep {
namespace {

#ifdef __aarch64__
// A lookup moves each byte to the top of a word, and the conversion from fixed point, with 24 bits
// of fraction, moves it back: two instructions per register, where widening twice and converting
// are two and a half. Registers side by side take turns on the units of the processor.
template <std::size_t Count>
[[gnu::always_inline]] inline void decode_block(float scale, const std::int8_t* integers,
                                                float* values) noexcept {
  constexpr std::uint8_t kZero = 0xFF;  // an index outside the register gives zero
  constexpr std::size_t kBytes = 16;
  constexpr std::size_t kParts = 4;  // registers of floats per register of bytes
  constexpr std::size_t kAtOnce = 2 * kParts;
  static_assert(Count % (2 * kBytes) == 0);
  uint8x16_t sources[kParts];
  for (std::size_t part = 0; part < kParts; ++part) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      sources[part][i] = i % 4 == 3 ? static_cast<std::uint8_t>(4 * part + i / 4) : kZero;
    }
  }
  for (std::size_t at = 0; at < Count; at += 2 * kBytes) {
    const uint8x16_t bytes[] = {vreinterpretq_u8_s8(vld1q_s8(integers + at)),
                                vreinterpretq_u8_s8(vld1q_s8(integers + at + kBytes))};
    float32x4_t floats[kAtOnce];
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      const auto word = vqtbl1q_u8(bytes[i / kParts], sources[i % kParts]);
      floats[i] = vcvtq_n_f32_s32(vreinterpretq_s32_u8(word), 24);
    }
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      vst1q_f32(values + at + 4 * i, vmulq_n_f32(floats[i], scale));
    }
  }
}
#else
template <std::size_t Count>
[[gnu::always_inline]] inline void decode_block(float scale, const std::int8_t* integers,
                                                float* values) noexcept {
  float* __restrict out = values;
  for (std::size_t i = 0; i < Count; ++i) out[i] = static_cast<float>(integers[i]) * scale;
}
#endif

}  // namespace
}  // namespace lockstep
