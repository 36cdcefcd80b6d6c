// Which steps to profile, as LOCKSTEP_PROFILE and `lockstep train --profile` spell it: "10:20" are
// the steps 10 to 20, both included; "10:20,operators" also records LibTorch's operators.
#pragma once

#include <string_view>

#include "lockstep/trace/trace.h"

namespace lockstep {

struct ProfileRequest {
  StepWindow window = {};
  bool operators = false;
};

/// Throws UsageError, naming `source` ("--profile"), for any other text.
[[nodiscard]] ProfileRequest parse_profile_request(std::string_view source, std::string_view text);

}  // namespace lockstep
