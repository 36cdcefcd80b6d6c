// Loops that the passes of room kernels are compared with, in the widest vectors of this processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/dispatch.h"

namespace lockstep {

template <InstructionSet>
struct LimitLoops {
  static void triad(float* a, const float* b, float s, std::size_t count) noexcept;
  static void root_and_divide(float* a, std::size_t count, std::size_t turns) noexcept;
  static void encode_halves(const float* values, std::uint16_t* to, std::size_t count) noexcept;
  static void encode_bytes(const float* values, float* error, std::uint8_t* to,
                           std::size_t count) noexcept;
  static void decode_bytes(const std::uint8_t* from, float* values, std::size_t count) noexcept;
};

/// a[i] = a[i] + s b[i].
inline void triad(float* a, const float* b, float s, std::size_t count) noexcept {
  dispatch<LimitLoops>(best_instruction_set(), [&](auto loops) { loops.triad(a, b, s, count); });
}

/// One square root and one division per element, `turns` times over the same elements.
inline void root_and_divide(float* a, std::size_t count, std::size_t turns) noexcept {
  dispatch<LimitLoops>(best_instruction_set(),
                       [&](auto loops) { loops.root_and_divide(a, count, turns); });
}

// The loads and stores of compression, with as little arithmetic as they allow.

/// As encoding bfloat16: the upper half of each value.
inline void encode_halves(const float* values, std::uint16_t* to, std::size_t count) noexcept {
  dispatch<LimitLoops>(best_instruction_set(),
                       [&](auto loops) { loops.encode_halves(values, to, count); });
}

/// As encoding int8 with error feedback: error = error + values, and its lowest byte.
inline void encode_bytes(const float* values, float* error, std::uint8_t* to,
                         std::size_t count) noexcept {
  dispatch<LimitLoops>(best_instruction_set(),
                       [&](auto loops) { loops.encode_bytes(values, error, to, count); });
}

/// As decoding int8: each byte is the lowest one of a value.
inline void decode_bytes(const std::uint8_t* from, float* values, std::size_t count) noexcept {
  dispatch<LimitLoops>(best_instruction_set(),
                       [&](auto loops) { loops.decode_bytes(from, values, count); });
}

}  // namespace lockstep
