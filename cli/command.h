// Runs another program to its end and keeps what it said.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::cli {

struct CommandResult {
  int code = 0;        // 127 when the program is not there; 128 + n when signal n ended it
  std::string output;  // stdout and stderr as they came
};

/// What runs a command in a folder: run_command, or what a test puts in its place.
using CommandRunner = std::function<CommandResult(const std::vector<std::string>& words,
                                                  const std::filesystem::path& folder)>;

/// The program is looked for in PATH. Throws SystemError when no process can be made.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& words,
                                        const std::filesystem::path& folder);

}  // namespace lockstep::cli
