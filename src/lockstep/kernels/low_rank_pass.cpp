#include "lockstep/kernels/low_rank_pass.h"

namespace lockstep {
namespace {

constexpr std::size_t kTile = 512;  // columns that stay in the first-level cache with all factors

}  // namespace

template <InstructionSet Set, typename T>
void LowRankLoops<Set, T>::product(const T* left, const T* right, std::size_t rank, T weight,
                                   T* result, T* residual, std::size_t rows,
                                   std::size_t columns) noexcept {
  alignas(64) T tile[kTile];
  for (std::size_t begin = 0; begin < columns; begin += kTile) {
    const auto length = columns - begin < kTile ? columns - begin : kTile;
    for (std::size_t row = 0; row < rows; ++row) {
      const T first = left[row];
      for (std::size_t j = 0; j < length; ++j) tile[j] = first * right[begin + j];
      for (std::size_t k = 1; k < rank; ++k) {
        const T* const other = right + k * columns + begin;
        const T factor = left[k * rows + row];
        for (std::size_t j = 0; j < length; ++j) tile[j] += factor * other[j];
      }
      T* __restrict out = result + row * columns + begin;
      T* __restrict lost = residual + row * columns + begin;
      for (std::size_t j = 0; j < length; ++j) {
        out[j] = tile[j];
        lost[j] -= weight * tile[j];
      }
    }
  }
}

template struct LowRankLoops<kCompiledFor, float>;
template struct LowRankLoops<kCompiledFor, double>;

}  // namespace lockstep
