// Programs that lie beside the lockstep command and do for it what needs LibTorch, so that the
// command itself starts at once.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// The program `name` in the folder of this program. Throws UsageError when it is not there.
[[nodiscard]] std::string sibling_path(const std::string& name);

/// What a person types for the lockstep command beside this program: its name where PATH finds it,
/// else its path from here.
[[nodiscard]] std::string typed_command(const Environment& environment);

/// Becomes the program `name` from the folder of this program, with `arguments` and the variable
/// that LibTorch's BLAS needs on this machine (machine/hidden_sve.h); returns only by throwing:
/// UsageError when it is not there, SystemError when it cannot be started.
[[noreturn]] void become_sibling(const std::string& name,
                                 const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
