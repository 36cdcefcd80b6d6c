// GELU by tanh and its gradient as loops over memory, in the widest vectors that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::models {

/// The bits of a bfloat16.
enum class BFloat16Bits : std::uint16_t {};

/// y = gelu(x), in float32 and rounded once.
void gelu_pass(const float* x, float* y, std::size_t count) noexcept;
void gelu_pass(const BFloat16Bits* x, BFloat16Bits* y, std::size_t count) noexcept;
/// The gradient for x, from the one for y.
void gelu_gradient_pass(const float* dy, const float* x, float* dx, std::size_t count) noexcept;
void gelu_gradient_pass(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx,
                        std::size_t count) noexcept;

}  // namespace lockstep::models
