// The rates of copies on the devices of this process, for the probe of room machine
// (machine/copy_rates.h).
#pragma once

#include <memory>

#include "lockstep/gpu/device_functions.h"
#include "lockstep/machine/copy_rates.h"

namespace lockstep {

/// Throws SystemError, in the words of the driver.
[[nodiscard]] std::unique_ptr<CopyTimer> make_copy_timer(
    std::shared_ptr<DeviceFunctions> functions);

}  // namespace lockstep
