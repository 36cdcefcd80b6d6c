#include "lockstep/kernels/int8_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "lockstep/kernels/int8_decode_internal.h"

namespace lockstep {
namespace {

constexpr float kLargest = 127.0F;
constexpr float kSmallest = 0x1p-100F;  // 127 divided by a smaller one could overflow
// Added to a number of magnitude up to 2^22, it makes the float's own addition round to an integer,
// which is then in the lowest bits.
constexpr float kRounder = 0x1.8p23F;

using Words [[gnu::vector_size(kRegisterBytes)]] = std::uint32_t;
using Floats [[gnu::vector_size(kRegisterBytes)]] = float;
constexpr std::size_t kLanes = kRegisterBytes / sizeof(float);
constexpr std::size_t kChains = 4;  // one chain of maxima would take longer than the loads

struct Scale {
  float scale;
  float inverse;
};

// `doubled` is twice the bits of the largest magnitude: without the sign, which needs no mask.
[[gnu::always_inline]] inline Scale scale_of(std::uint32_t doubled) noexcept {
  const auto bits = doubled >> 1;
  if (bits >= 0x7F800000U) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const auto largest = std::bit_cast<float>(bits);
  if (largest < kSmallest) return {0, 0};
  return {largest / kLargest, kLargest / largest};
}

[[gnu::always_inline]] inline Words larger(Words a, Words b) noexcept { return a > b ? a : b; }

// Magnitudes are compared as integers, so that NaN is the largest one.
[[gnu::always_inline]] inline std::uint32_t add_error(const float* values, const float* error,
                                                      float* sums) noexcept {
  Words largest[kChains] = {};
  for (std::size_t i = 0; i < kInt8Block; i += kChains * kLanes) {
    for (std::size_t chain = 0; chain < kChains; ++chain) {
      const auto at = i + chain * kLanes;
      Floats value;
      std::memcpy(&value, values + at, sizeof(value));
      if (error != nullptr) {
        Floats lost;
        std::memcpy(&lost, error + at, sizeof(lost));
        value += lost;
      }
      std::memcpy(sums + at, &value, sizeof(value));
      const auto bits = std::bit_cast<Words>(value);
      largest[chain] = larger(largest[chain], bits + bits);
    }
  }
  const auto all = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
  std::uint32_t result = 0;
  for (std::size_t i = 0; i < kLanes; ++i) result = all[i] > result ? all[i] : result;
  return result;
}

[[gnu::always_inline]] inline void round_block(const float* sums, Scale with, float* residual,
                                               std::int8_t* integers) noexcept {
  float* __restrict lost = residual;
  std::int8_t* __restrict out = integers;
  if (with.scale != with.scale) {
    for (std::size_t i = 0; i < kInt8Block; ++i) lost[i] = with.scale;
    std::memset(out, 0, kInt8Block);
    return;
  }
  for (std::size_t i = 0; i < kInt8Block; ++i) {
    const float rounded = sums[i] * with.inverse + kRounder;
    lost[i] = sums[i] - (rounded - kRounder) * with.scale;
    out[i] = static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(rounded));
  }
}

}  // namespace

template <InstructionSet Set>
void Int8Loops<Set>::encode(const float* values, const float* error, float* residual, float* scales,
                            std::int8_t* integers, std::size_t count) noexcept {
  // A scale is known only after a maximum over the whole block and two divisions. Meanwhile the
  // block before is rounded: sums are one block ahead.
  alignas(64) float sums[2][kInt8Block];
  const auto whole = count / kInt8Block;
  const auto scale_from = [&](std::size_t block) {
    const auto at = block * kInt8Block;
    return scale_of(
        add_error(values + at, error == nullptr ? nullptr : error + at, sums[block % 2]));
  };
  Scale next = whole == 0 ? Scale{} : scale_from(0);
  for (std::size_t block = 0; block < whole; ++block) {
    const auto with = next;
    if (block + 1 < whole) next = scale_from(block + 1);
    scales[block] = with.scale;
    round_block(sums[block % 2], with, residual + block * kInt8Block,
                integers + block * kInt8Block);
  }
  const auto at = whole * kInt8Block;
  if (at == count) return;
  const auto bytes = (count - at) * sizeof(float);
  float padded[kInt8Block] = {};
  float lost[kInt8Block] = {};
  std::memcpy(padded, values + at, bytes);
  if (error != nullptr) std::memcpy(lost, error + at, bytes);
  // Without an error nothing is added, not even a zero: -0 stays -0 as in whole blocks.
  const auto with = scale_of(add_error(padded, error == nullptr ? nullptr : lost, sums[0]));
  scales[whole] = with.scale;
  round_block(sums[0], with, lost, integers + at);
  std::memcpy(residual + at, lost, bytes);
}

template <InstructionSet Set>
void Int8Loops<Set>::decode(const float* scales, const std::int8_t* integers, float* values,
                            std::size_t count) noexcept {
  const auto whole = count / kInt8Block;
  for (std::size_t block = 0; block < whole; ++block) {
    decode_block<kInt8Block>(scales[block], integers + block * kInt8Block,
                             values + block * kInt8Block);
  }
  const auto at = whole * kInt8Block;
  if (at == count) return;
  float padded[kInt8Block];
  decode_block<kInt8Block>(scales[whole], integers + at, padded);
  std::memcpy(values + at, padded, (count - at) * sizeof(float));
}

template <InstructionSet Set>
void Int8Loops<Set>::sum(std::span<const int> instructions, const Int8Term* terms, float divisor,
                         float* result, std::size_t count) noexcept {
  alignas(64) float stack[kInt8MaxDepth][kInt8Block];
  const auto blocks = int8_num_blocks(count);
  const auto num_instructions = instructions.size();
  const int* const program = instructions.data();
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto at = block * kInt8Block;
    const auto length = count - at < kInt8Block ? count - at : kInt8Block;
    std::size_t height = 0;
    for (std::size_t i = 0; i < num_instructions; ++i) {
      if (program[i] == TreePlan::kCombine) {
        float* __restrict lower = stack[height - 2];
        const float* __restrict upper = stack[height - 1];
        for (std::size_t k = 0; k < kInt8Block; ++k) lower[k] += upper[k];
        --height;
        continue;
      }
      const auto& term = terms[program[i]];
      float* const top = stack[height++];
      if (term.exact == nullptr) {
        decode_block<kInt8Block>(term.encoded.scales[block], term.encoded.integers + at, top);
      } else {
        std::memcpy(top, term.exact + at, length * sizeof(float));
        for (auto k = length; k < kInt8Block; ++k) top[k] = 0;
      }
    }
    for (std::size_t k = 0; k < kInt8Block; ++k) stack[0][k] /= divisor;
    std::memcpy(result + at, stack[0], length * sizeof(float));
  }
}

template struct Int8Loops<kCompiledFor>;

}  // namespace lockstep
