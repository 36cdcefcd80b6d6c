#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <system_error>

namespace lockstep {

SystemError::SystemError(std::string_view what_failed, int error_number)
    // generic_category().message() is a thread-safe strerror.
    : Error(fmt::format("{}: {}", what_failed, std::generic_category().message(error_number))),
      error_number_(error_number) {}

}  // namespace lockstep
