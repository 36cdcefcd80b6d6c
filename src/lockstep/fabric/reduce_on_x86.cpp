#include "lockstep/fabric/reduce_kernels_internal.h"

namespace lockstep {

const ReduceKernels& best_kernels() noexcept {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return avx512_kernels();
  }
  return __builtin_cpu_supports("avx2") ? avx2_kernels() : baseline_kernels();
}

}  // namespace lockstep
