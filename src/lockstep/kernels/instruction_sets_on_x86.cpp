#include <array>

#include "lockstep/kernels/instruction_set.h"

namespace lockstep {

std::span<const InstructionSet> instruction_sets() noexcept {
  static constexpr std::array kAll{InstructionSet::baseline, InstructionSet::avx2,
                                   InstructionSet::avx512};
  if (!__builtin_cpu_supports("avx2")) return std::span(kAll).first<1>();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return std::span(kAll).first(has_avx512 ? 3 : 2);
}

}  // namespace lockstep
