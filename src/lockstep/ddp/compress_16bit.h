// Gradients as 16-bit numbers on the wire: half the traffic of float32. Values are rounded once
// before they are sent; sums are computed in float32 and rounded once again (docs/compression.md).
#pragma once

#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

/// bfloat16: the range of float32, 8 bits of precision.
[[nodiscard]] GradientHook compress_bf16();
/// The same, and `inner` reduces the bfloat16 values.
[[nodiscard]] GradientHook compress_bf16(GradientHook inner);

/// float16: 11 bits of precision, and values up to 65504. A larger gradient is sent as infinity;
/// the step is then non-finite on all ranks (Ddp::non_finite()), and the rank logs it once.
[[nodiscard]] GradientHook compress_fp16();
[[nodiscard]] GradientHook compress_fp16(GradientHook inner);

}  // namespace lockstep
