// Runs another program until it ends, and returns its output.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

struct CommandResult {
  int code = 0;        // 127: the program does not exist; 128 + n: signal n ended it
  std::string output;  // stdout and stderr, interleaved
};

/// Runs a command in a folder: run_command, or its replacement in a test.
using CommandRunner = std::function<CommandResult(const std::vector<std::string>& words,
                                                  const std::filesystem::path& folder)>;

/// Searches the program in PATH, runs it in `folder` and waits for its end. Throws SystemError when
/// the process does not start.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& words,
                                        const std::filesystem::path& folder);

/// The code of a program that was killed at its deadline.
inline constexpr int kTimedOut = 124;

/// The same with `environment`. At the deadline the program is killed.
[[nodiscard]] CommandResult run_command_until(const std::vector<std::string>& words,
                                              const std::filesystem::path& folder,
                                              const Environment& environment, Deadline deadline);

}  // namespace lockstep::cli
