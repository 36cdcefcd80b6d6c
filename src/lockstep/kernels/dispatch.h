// Compiles a loop over memory for every instruction set and selects one at run time.
//
// Loops are static functions of a class template over InstructionSet, and over the element type
// where there are several. The source that defines them is listed in lockstep_vector_sources() of
// its room's CMakeLists.txt: CMake compiles it once per instruction set, and the source ends with
// explicit instantiations for kCompiledFor. All other code of such a source is in an unnamed
// namespace, so that the linker never replaces code for one processor by code for another.
#pragma once

#include <cstddef>

#include "lockstep/kernels/instruction_set.h"

namespace lockstep {

#ifndef LOCKSTEP_INSTRUCTION_SET  // set by lockstep_vector_sources()
#define LOCKSTEP_INSTRUCTION_SET baseline
#endif
constexpr auto kCompiledFor = InstructionSet::LOCKSTEP_INSTRUCTION_SET;
constexpr std::size_t kRegisterBytes = kCompiledFor == InstructionSet::avx512 ? 64
                                       : kCompiledFor == InstructionSet::avx2 ? 32
                                                                              : 16;

/// Returns call(Loops<set, Types...>()). This processor must support `set`.
template <template <InstructionSet, typename...> typename Loops, typename... Types, typename Call>
decltype(auto) dispatch([[maybe_unused]] InstructionSet set, const Call& call) {
#ifdef __x86_64__
  if (set == InstructionSet::avx512) return call(Loops<InstructionSet::avx512, Types...>());
  if (set == InstructionSet::avx2) return call(Loops<InstructionSet::avx2, Types...>());
#endif
  return call(Loops<InstructionSet::baseline, Types...>());
}

}  // namespace lockstep
