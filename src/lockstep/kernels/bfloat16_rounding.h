// Rounding to bfloat16 by an instruction of the processor, where it has one that is bit-identical
// to narrow_to_bfloat16(): Arm's BFCVTN. x86-64 has VCVTNEPS2BF16, which makes subnormal numbers
// zero.
#pragma once

#include <cstddef>

#include "lockstep/base/half.h"

namespace lockstep {

/// Whether this processor has the instruction.
[[nodiscard]] bool rounds_to_bfloat16() noexcept;

/// Rounds `count` values; `from` and `to` do not overlap. Only if rounds_to_bfloat16().
void round_to_bfloat16(const float* from, BFloat16* to, std::size_t count) noexcept;

}  // namespace lockstep
