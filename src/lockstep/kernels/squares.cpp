#include "lockstep/kernels/squares.h"

#include <array>

namespace lockstep {

// Sixteen partial sums for every register width, added in a fixed order at the end.
template <InstructionSet Set, typename Stored>
double SquaresLoops<Set, Stored>::sum(std::span<const Stored> block) noexcept {
  constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const auto* const values = block.data();
  const auto whole = block.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(widened(values[i + lane]));
      sums[lane] += value * value;
    }
  }
  for (auto i = whole; i < block.size(); ++i) {
    const auto value = static_cast<double>(widened(values[i]));
    sums[i - whole] += value * value;
  }
  double sum = 0;
  for (const auto part : sums) sum += part;
  return sum;
}

template struct SquaresLoops<kCompiledFor, float>;
template struct SquaresLoops<kCompiledFor, double>;
template struct SquaresLoops<kCompiledFor, Float16>;
template struct SquaresLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
