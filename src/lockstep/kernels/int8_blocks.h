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

/// A term of a sum: floats, or the encoded values of a rank if `exact` is null.
struct Int8Term {
  const std::byte* encoded = nullptr;
  const float* exact = nullptr;
};

template <InstructionSet>
struct Int8Loops {
  static void encode(const float* values, const float* error, float* residual, std::byte* encoded,
                     std::size_t count) noexcept;
  static void decode(const std::byte* encoded, float* values, std::size_t count) noexcept;
  static void sum(std::span<const int> instructions, const Int8Term* terms, float divisor,
                  float* result, std::size_t count) noexcept;
};

/// Encodes values + error, and sets `residual`. `error` may be empty; the others have the length of
/// `values`. `residual` may be identical with `values` or `error`. `encoded` has
/// int8_bytes(values.size()) bytes, aligned as float.
inline void int8_encode_pass(std::span<const float> values, std::span<const float> error,
                             std::span<float> residual, std::span<std::byte> encoded,
                             InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT((error.empty() || error.size() == values.size()) &&
                      residual.size() == values.size() &&
                      encoded.size() == int8_bytes(values.size()),
                  "int8_encode_pass: lengths differ");
  dispatch<Int8Loops>(set, [&](auto loops) {
    loops.encode(values.data(), error.empty() ? nullptr : error.data(), residual.data(),
                 encoded.data(), values.size());
  });
}

/// Decodes into `values`.
inline void int8_decode_pass(std::span<const std::byte> encoded, std::span<float> values,
                             InstructionSet set = best_instruction_set()) noexcept {
  LOCKSTEP_ASSERT(encoded.size() == int8_bytes(values.size()), "int8_decode_pass: lengths differ");
  dispatch<Int8Loops>(
      set, [&](auto loops) { loops.decode(encoded.data(), values.data(), values.size()); });
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
