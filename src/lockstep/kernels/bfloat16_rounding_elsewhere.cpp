#include "lockstep/base/assert.h"
#include "lockstep/kernels/bfloat16_rounding.h"

namespace lockstep {

bool rounds_to_bfloat16() noexcept { return false; }

void round_to_bfloat16(const float* /*from*/, BFloat16* /*to*/, std::size_t /*count*/) noexcept {
  LOCKSTEP_ASSERT(rounds_to_bfloat16(),
                  "this processor has no instruction that rounds to bfloat16");
}

}  // namespace lockstep
