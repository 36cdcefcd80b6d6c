// Compiled for what every processor of this kind has: NEON, SSE2.
#include "lockstep/fabric/reduce_lines_internal.h"

namespace lockstep {

const ReduceKernels& baseline_kernels() noexcept { return kKernels<16>; }

}  // namespace lockstep
