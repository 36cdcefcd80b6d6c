// Gradients as 8-bit integers, for transfer. A block of 256 floats becomes one float, its scale,
// and 256 integers: value = integer × scale, where the scale is the largest magnitude of the block
// divided by 127. Integers are rounded to nearest even.
//
// The residual is what rounding loses: value - integer × scale. A caller that adds it to the next
// values (error feedback) loses nothing in the sum over many steps.
//
// A block with a non-finite value has the scale NaN: all its values are NaN after decoding. A block
// whose largest magnitude is below 2^-100 is encoded as zeros; its values are the residual.
//
// Encoded memory has the scales of all blocks, then the integers of all blocks. The last block is
// padded with zeros. Every loop is bit-identical on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

constexpr std::size_t kInt8Block = 256;
/// The deepest TreePlan of int8_sum_pass(): any number of ranks.
constexpr int kInt8MaxDepth = 34;

[[nodiscard]] constexpr std::size_t int8_num_blocks(std::size_t count) noexcept {
  return (count + kInt8Block - 1) / kInt8Block;
}
/// The size of `count` encoded values.
[[nodiscard]] constexpr std::size_t int8_bytes(std::size_t count) noexcept {
  return int8_num_blocks(count) * (sizeof(float) + kInt8Block);
}

/// The encoded values of whole blocks.
struct Int8Blocks {
  float* scales = nullptr;
  std::int8_t* integers = nullptr;

  /// `encoded` is memory for `count` values, aligned as float.
  [[nodiscard]] static Int8Blocks in(std::span<std::byte> encoded, std::size_t count) noexcept {
    LOCKSTEP_ASSERT(encoded.size() == int8_bytes(count), "Int8Blocks: not the size of the values");
    const auto scale_bytes = int8_num_blocks(count) * sizeof(float);
    return {reinterpret_cast<float*>(encoded.data()),
            reinterpret_cast<std::int8_t*>(encoded.data() + scale_bytes)};
  }
  /// The values from `begin` on, which is a multiple of kInt8Block.
  [[nodiscard]] Int8Blocks from(std::size_t begin) const noexcept {
    return {scales + begin / kInt8Block, integers + begin};
  }
};

/// A term of a sum: floats, or encoded values if `exact` is null.
struct Int8Term {
  Int8Blocks encoded = {};
  const float* exact = nullptr;
};

template <InstructionSet>
struct Int8Loops {
  static void encode(const float* values, const float* error, float* residual, float* scales,
                     std::int8_t* integers, std::size_t count) noexcept;
  static void decode(const float* scales, const std::int8_t* integers, float* values,
                     std::size_t count) noexcept;
  static void sum(std::span<const int> instructions, const Int8Term* terms, float divisor,
                  float* result, std::size_t count) noexcept;
};

/// Encodes values + error into `to`, and sets `residual`. `error` may be empty; the others have the
/// length of `values`. `residual` may be identical with `values` or `error`.
inline void int8_encode_pass(std::span<const float> values, std::span<const float> error,
                             std::span<float> residual, Int8Blocks to,
                             InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(
      (error.empty() || error.size() == values.size()) && residual.size() == values.size(),
      "int8_encode_pass: lengths differ");
  dispatch<Int8Loops>(set, [&](auto loops) {
    loops.encode(values.data(), error.empty() ? nullptr : error.data(), residual.data(), to.scales,
                 to.integers, values.size());
  });
}

/// Decodes into `values`.
inline void int8_decode_pass(Int8Blocks from, std::span<float> values,
                             InstructionSet set = best_instruction_set()) noexcept {
  dispatch<Int8Loops>(set, [&](auto loops) {
    loops.decode(from.scales, from.integers, values.data(), values.size());
  });
}

/// result = (sum of the decoded terms, in the order of `plan`) / divisor. Each term has the length
/// of `result`, which may be identical with an exact term.
inline void int8_sum_pass(const TreePlan& plan, std::span<const Int8Term> terms, float divisor,
                          std::span<float> result,
                          InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(
      plan.num_contributions() == static_cast<int>(terms.size()) && plan.depth() <= kInt8MaxDepth,
      "int8_sum_pass: the plan has other contributions");
  dispatch<Int8Loops>(set, [&](auto loops) {
    loops.sum(plan.instructions(), terms.data(), divisor, result.data(), result.size());
  });
}

}  // namespace lockstep
