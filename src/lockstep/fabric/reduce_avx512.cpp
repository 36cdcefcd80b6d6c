// Compiled for AVX-512.
#include "lockstep/fabric/reduce_lines_internal.h"

namespace lockstep {

const ReduceKernels& avx512_kernels() noexcept { return kKernels<64>; }

}  // namespace lockstep
