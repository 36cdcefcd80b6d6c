// The vector instruction sets for which loops over memory are compiled. Every loop of this room is
// bit-identical on every instruction set: the order of operations on elements never depends on the
// register width, and multiplications and additions are never fused.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

enum class InstructionSet {
  baseline,  // supported by every processor of the architecture: NEON on aarch64, SSE2 on x86-64
  avx2,
  avx512,  // F, BW, DQ and VL
};

/// The instruction sets of this processor, from baseline to the widest.
[[nodiscard]] std::span<const InstructionSet> instruction_sets() noexcept;
/// The widest instruction set of this processor.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;
[[nodiscard]] std::string_view to_string(InstructionSet set) noexcept;

}  // namespace lockstep
