// Compiled for AVX2.
#include "lockstep/fabric/reduce_lines_internal.h"

namespace lockstep {

const ReduceKernels& avx2_kernels() noexcept { return kKernels<32>; }

}  // namespace lockstep
