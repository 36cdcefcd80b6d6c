#include <array>

#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

// Adds the upper half of the lanes to the lower one until one is left. Recursive, so that compilers
// keep lanes in registers.
template <std::size_t Left, std::size_t Lanes>
[[gnu::always_inline]] inline double added_by_halves(std::array<double, Lanes>& lanes) {
  if constexpr (Left == 1) {
    return lanes[0];
  } else {
    for (std::size_t lane = 0; lane < Left / 2; ++lane) lanes[lane] += lanes[lane + Left / 2];
    return added_by_halves<Left / 2>(lanes);
  }
}

template <typename Stored>
[[gnu::always_inline]] inline double square_of(Stored value) {
  const auto wide = static_cast<double>(widened(value));
  return wide * wide;
}

template <typename Stored>
[[gnu::always_inline]] inline double cell(const Stored* __restrict values, std::size_t count) {
  std::array<double, kCellLanes> sums{};
  const auto whole = count / kCellLanes * kCellLanes;
#pragma GCC unroll 4
  for (std::size_t i = 0; i < whole; i += kCellLanes) {
    for (std::size_t lane = 0; lane < kCellLanes; ++lane) {
      sums[lane] += square_of(values[i + lane]);
    }
  }
  for (auto i = whole; i < count; ++i) sums[i - whole] += square_of(values[i]);
  return added_by_halves<kCellLanes>(sums);
}

}  // namespace

template <InstructionSet Set, typename Stored>
void SquaresLoops<Set, Stored>::cells(std::span<const Stored> values, std::size_t lead,
                                      std::span<double> sums) noexcept {
  constexpr auto kWhole = kCellElements<Stored>;
  const auto* first = values.data();
  const auto* const end = first + values.size();
  auto* sum = sums.data();
  *sum++ = cell(first, lead);
  for (first += lead; first + kWhole <= end; first += kWhole) *sum++ = cell(first, kWhole);
  if (first < end) *sum = cell(first, static_cast<std::size_t>(end - first));
}

template <InstructionSet Set>
double TotalLoops<Set>::lanes(std::span<const double> sums) noexcept {
  std::array<double, kTotalLanes> lanes{};
  const auto whole = sums.size() / kTotalLanes * kTotalLanes;
  for (std::size_t i = 0; i < whole; i += kTotalLanes) {
    for (std::size_t lane = 0; lane < kTotalLanes; ++lane) lanes[lane] += sums[i + lane];
  }
  for (auto i = whole; i < sums.size(); ++i) lanes[i - whole] += sums[i];
  return added_by_halves<kTotalLanes>(lanes);
}

template struct SquaresLoops<kCompiledFor, float>;
template struct SquaresLoops<kCompiledFor, double>;
template struct SquaresLoops<kCompiledFor, Float16>;
template struct SquaresLoops<kCompiledFor, BFloat16>;
template struct TotalLoops<kCompiledFor>;

}  // namespace lockstep
