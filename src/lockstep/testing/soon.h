// The deadline of a test for events that are certain to happen.
#pragma once

#include <chrono>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

/// Ten times the time in which all processes of a test load LibTorch on a busy machine.
[[nodiscard]] inline Deadline soon() { return Deadline::after(std::chrono::seconds(120)); }

}  // namespace lockstep::testing
