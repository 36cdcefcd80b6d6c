// Cores of Arm see by themselves that whole lines are written, and do not read them first.
#include "lockstep/flat/noted_copy.h"

namespace lockstep {

template <typename Word>
Word stream_lines(std::byte* to, const std::byte* from, std::size_t lines,
                  Exponent<Word> exponent) noexcept {
  return copy_lines(to, from, lines, exponent);
}
template std::uint16_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint16_t>) noexcept;
template std::uint32_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint32_t>) noexcept;
template std::uint64_t stream_lines(std::byte*, const std::byte*, std::size_t,
                                    Exponent<std::uint64_t>) noexcept;

}  // namespace lockstep
