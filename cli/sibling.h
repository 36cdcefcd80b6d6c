// The sibling programs of the lockstep command: they are in the same folder and do the work that
// needs LibTorch, so that the command itself starts at once.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// The path of the program `name` in the folder of this program. Throws UsageError when it does not
/// exist.
[[nodiscard]] std::string sibling_path(const std::string& name);

/// The lockstep command of this program's folder as the user types it: its name if PATH has the
/// folder, else its relative path.
[[nodiscard]] std::string typed_command(const Environment& environment);

/// Replaces this process by the program `name` of the same folder (execve), with `arguments` and
/// the environment variable that LibTorch's BLAS needs on this machine (machine/hidden_sve.h). Does
/// not return. Throws UsageError when the program does not exist, SystemError when it does not
/// start.
[[noreturn]] void become_sibling(const std::string& name,
                                 const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
