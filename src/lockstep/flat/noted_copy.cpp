#include "lockstep/flat/noted_copy.h"

#include "lockstep/flat/noted_lines_internal.h"

namespace lockstep {
namespace {

struct ThroughCaches {
  static void begin_line(const std::byte* /*from*/) noexcept {}
  template <typename Register>
  static void write(std::byte* to, Register bits) noexcept {
    std::memcpy(to, &bits, sizeof(bits));
  }
};

}  // namespace

template <typename Word>
Word copy_lines(std::byte* to, const std::byte* from, std::size_t lines,
                Exponent<Word> exponent) noexcept {
  return copy_each<ThroughCaches>(to, from, lines, exponent);
}
template std::uint16_t copy_lines(std::byte*, const std::byte*, std::size_t,
                                  Exponent<std::uint16_t>) noexcept;
template std::uint32_t copy_lines(std::byte*, const std::byte*, std::size_t,
                                  Exponent<std::uint32_t>) noexcept;
template std::uint64_t copy_lines(std::byte*, const std::byte*, std::size_t,
                                  Exponent<std::uint64_t>) noexcept;

}  // namespace lockstep
