// A row is processed in whole vectors: up to the next multiple of kLanes after its last position,
// or to the end of the row. The extra elements are first filled with values that do not change the
// result.
#include "lockstep/kernels/causal_softmax_pass.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "lockstep/kernels/exponential_internal.h"

namespace lockstep {
namespace {

// A sum has one partial sum per lane of the widest vector, and the partial sums are added in a
// fixed order: narrower vectors give bit-identical results.
constexpr std::size_t kLanes = 16;

[[gnu::always_inline]] inline std::size_t end_of_row(std::size_t count,
                                                     std::size_t length) noexcept {
  return std::min((count + kLanes - 1) / kLanes * kLanes, length);
}

[[gnu::always_inline]] inline void fill(float* row, std::size_t begin, std::size_t end,
                                        float value) noexcept {
  for (auto j = begin; j < end; ++j) row[j] = value;
}

// Compares integers that have the order of the floats: compilers vectorize the maximum of integers,
// and that of floats only where they may ignore NaN. With NaN in the row the result is any element.
[[gnu::always_inline]] inline float largest_of(const float* row, std::size_t count) noexcept {
  constexpr std::int32_t magnitude = 0x7FFFFFFF;
  const auto in_order = [](std::int32_t bits) { return bits ^ ((bits >> 31) & magnitude); };
  auto largest = std::numeric_limits<std::int32_t>::min();
  for (std::size_t j = 0; j < count; ++j) {
    const auto key = in_order(std::bit_cast<std::int32_t>(row[j]));
    largest = key > largest ? key : largest;
  }
  return std::bit_cast<float>(in_order(largest));
}

template <std::size_t Count>
[[gnu::always_inline]] inline float total_of(float* lanes) noexcept {
  if constexpr (Count > 1) {
    for (std::size_t lane = 0; lane < Count / 2; ++lane) lanes[lane] += lanes[lane + Count / 2];
    return total_of<Count / 2>(lanes);
  }
  return lanes[0];
}

// The sum of term(j) for j < count.
template <typename Term>
[[gnu::always_inline]] inline float sum_of(const Term& term, std::size_t count) noexcept {
  float lanes[kLanes] = {};
  std::size_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(j + lane);
  }
  for (std::size_t lane = 0; j + lane < count; ++lane) lanes[lane] += term(j + lane);
  return total_of<kLanes>(lanes);
}

[[gnu::always_inline]] inline float exponential_of_negative(float z) noexcept {
  const float power = exponential(z < -kFar ? -kFar : z);  // NaN stays
  return z < -kFar ? 0.0F : power;
}

[[gnu::always_inline]] inline void softmax(float* row, std::size_t count, std::size_t length,
                                           float scale) noexcept {
  const auto end = end_of_row(count, length);
  fill(row, count, end, -std::numeric_limits<float>::infinity());
  const float largest = largest_of(row, end);
  for (std::size_t j = 0; j < end; ++j) {
    row[j] = exponential_of_negative((row[j] - largest) * scale);
  }
  const float factor = 1.0F / sum_of([row](std::size_t j) { return row[j]; }, end);
  for (std::size_t j = 0; j < end; ++j) row[j] *= factor;
  fill(row, count, length, 0.0F);
}

[[gnu::always_inline]] inline void gradient(const float* probability, float* __restrict row,
                                            std::size_t count, std::size_t length,
                                            float scale) noexcept {
  const auto end = end_of_row(count, length);
  fill(row, count, end, 0.0F);
  const float mean = sum_of([=](std::size_t j) { return probability[j] * row[j]; }, end);
  for (std::size_t j = 0; j < end; ++j) row[j] = probability[j] * (row[j] - mean) * scale;
  fill(row, count, length, 0.0F);
}

}  // namespace

template <InstructionSet Set>
void CausalSoftmaxLoops<Set>::forward(float* scores, std::size_t length, float scale) noexcept {
  for (std::size_t i = 0; i < length; ++i) softmax(scores + i * length, i + 1, length, scale);
}

template <InstructionSet Set>
void CausalSoftmaxLoops<Set>::backward(const float* probabilities, float* gradients,
                                       std::size_t length, float scale) noexcept {
  for (std::size_t i = 0; i < length; ++i) {
    gradient(probabilities + i * length, gradients + i * length, i + 1, length, scale);
  }
}

template struct CausalSoftmaxLoops<kCompiledFor>;

}  // namespace lockstep
