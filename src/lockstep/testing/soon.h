// The deadline of a test for whatever will happen, sooner or later.
#pragma once

#include <chrono>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

/// Ten times what it takes until all processes of a test have loaded LibTorch on a busy machine.
[[nodiscard]] inline Deadline soon() { return Deadline::after(std::chrono::seconds(120)); }

}  // namespace lockstep::testing
