// The download step of a fetch: which Python's pip is used, the command, and why it failed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/data/fetch.h"

namespace lockstep::cli {

/// The first of `pythons` that can import pip. Throws UsageError that states for each of them why
/// it is not used, and what to install.
[[nodiscard]] std::string python_with_pip(const std::vector<std::string>& pythons,
                                          const std::filesystem::path& folder,
                                          const CommandRunner& run);

/// Why `tool` did not download the recipe's package, from its exit code and output, and what to do
/// next. A clause without a full stop.
[[nodiscard]] std::string why_not_downloaded(FetchTool tool, const CommandResult& result);

/// Downloads the recipe's package into `folder` and returns its path; its hash is the pinned one.
/// Throws UsageError that states the cause and what to do next.
[[nodiscard]] std::filesystem::path download(const FetchRecipe& recipe, const FetchOptions& options,
                                             const std::filesystem::path& folder,
                                             const CommandRunner& run);

}  // namespace lockstep::cli
