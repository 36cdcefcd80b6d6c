// The code points that are letters and numbers, as ranges in ascending order.
#pragma once

#include <span>

namespace lockstep {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

[[nodiscard]] std::span<const CodePointRange> letter_ranges() noexcept;
[[nodiscard]] std::span<const CodePointRange> number_ranges() noexcept;

}  // namespace lockstep
