#include "lockstep/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void assertion_failed(const char* condition, const char* reason, const char* file,
                      int line) noexcept {
  std::fprintf(stderr,
               "lockstep: broken invariant: %s\n  %s, at %s:%d\n"
               "  This is a defect of lockstep, please report it with the lines above.\n",
               reason, condition, file, line);
  std::abort();
}

}  // namespace lockstep
