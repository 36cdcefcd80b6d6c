// The element types of spans, and the operations that reduce them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  int8,
  int32,
  int64,
  uint8,
  boolean,  // one byte: 0 or 1
};
constexpr int kNumDTypes = 9;

/// average divides the sum by the number of ranks. weighted_average divides it by the sum of the
/// ranks' weights, or by 1 if that sum is 0. Both require floating point. min and max return NaN if
/// any input is NaN. Integers wrap. For boolean, sum and max mean or; product and min mean and.
enum class ReduceOp : std::uint8_t { sum, average, min, max, product, weighted_average };
constexpr int kNumReduceOps = 6;

[[nodiscard]] std::size_t bytes_of(DType dtype) noexcept;
[[nodiscard]] bool is_floating(DType dtype) noexcept;
[[nodiscard]] bool divides(ReduceOp op) noexcept;
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

}  // namespace lockstep
