#include "lockstep/base/crc32c_internal.h"

namespace lockstep {

AddWords find_add_words() noexcept { return nullptr; }

}  // namespace lockstep
