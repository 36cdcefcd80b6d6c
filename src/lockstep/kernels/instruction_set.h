// The vector instructions that loops over memory are compiled for. Every loop of this room gives
// the same bits on every instruction set: elements never meet in an order that depends on the width
// of registers, and multiplications and additions are never fused.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

enum class InstructionSet {
  baseline,  // what every processor of the architecture has: NEON on aarch64, SSE2 on x86-64
  avx2,
  avx512,  // F, BW, DQ and VL
};

/// The instruction sets of this processor, baseline first, the widest last.
[[nodiscard]] std::span<const InstructionSet> instruction_sets() noexcept;
/// The widest one.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;
[[nodiscard]] std::string_view to_string(InstructionSet set) noexcept;

}  // namespace lockstep
