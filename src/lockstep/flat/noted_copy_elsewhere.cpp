// Cores of Arm see by themselves that whole lines are written, and do not read them first.
#include "lockstep/flat/noted_copy.h"

namespace lockstep {

std::uint16_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint16_t> exponent) noexcept {
  return copy_lines(to, from, lines, exponent);
}
std::uint32_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint32_t> exponent) noexcept {
  return copy_lines(to, from, lines, exponent);
}
std::uint64_t stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                           Exponent<std::uint64_t> exponent) noexcept {
  return copy_lines(to, from, lines, exponent);
}

}  // namespace lockstep
