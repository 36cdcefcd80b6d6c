// The loops behind crc32c_of_thirds(), one file per processor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

using ThirdsCrc = std::array<std::uint32_t, 3>;

/// Adds 8 * num_words bytes to each of three checksums in progress: those at `bytes`, at
/// bytes + stride and at bytes + 2 * stride.
using AddWords = void (*)(const std::byte* bytes, std::size_t stride, std::size_t num_words,
                          ThirdsCrc& crcs) noexcept;

/// The fastest loop for this processor; null if it has no instructions for checksums.
[[nodiscard]] AddWords find_add_words() noexcept;

// Folding: a lane is 16 bytes, as a polynomial. To multiply it by x^(8 * n) and to add the lane
// that lies n bytes behind it leaves the remainder modulo the polynomial of the checksum unchanged.
// Lanes that are not neighbours are independent, and a processor multiplies several at the same
// time. (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ".)

/// x^exponent modulo the polynomial; the highest bit is that of x^0.
constexpr std::uint64_t power_of_x(std::size_t exponent) {
  std::uint32_t power = 0x80000000U;
  for (std::size_t i = 0; i < exponent; ++i) {
    power = (power >> 1) ^ ((power & 1) != 0 ? 0x82F63B78U : 0);
  }
  return power;
}
/// The factors of the two halves of a lane that moves by `bytes`. The product of two polynomials in
/// this order of bits is shifted by one bit; the factors make up for it.
constexpr std::array<std::uint64_t, 2> fold_factors(std::size_t bytes) {
  return {power_of_x(8 * bytes + 31), power_of_x(8 * bytes - 33)};
}

}  // namespace lockstep
