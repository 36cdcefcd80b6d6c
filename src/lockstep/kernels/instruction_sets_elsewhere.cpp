#include <array>

#include "lockstep/kernels/instruction_set.h"

namespace lockstep {

std::span<const InstructionSet> instruction_sets() noexcept {
  static constexpr std::array kAll{InstructionSet::baseline};
  return kAll;
}

}  // namespace lockstep
