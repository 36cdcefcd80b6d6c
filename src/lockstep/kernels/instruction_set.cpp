#include "lockstep/kernels/instruction_set.h"

#include "lockstep/base/assert.h"

namespace lockstep {

InstructionSet best_instruction_set() noexcept { return instruction_sets().back(); }

std::string_view to_string(InstructionSet set) noexcept {
  switch (set) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "AVX2";
    case InstructionSet::avx512:
      return "AVX-512";
  }
  LOCKSTEP_ASSERT(false, "invalid InstructionSet");
  return "";
}

}  // namespace lockstep
