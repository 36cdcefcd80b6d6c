// The download step of a fetch: the choice of a Python with pip, the command, and the reason of a
// failure.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/data/fetch.h"

namespace lockstep::cli {

/// The first of `pythons` that can import pip. Throws UsageError with the reason for each of them,
/// and what to install.
[[nodiscard]] std::string python_with_pip(const std::vector<std::string>& pythons,
                                          const std::filesystem::path& folder,
                                          const CommandRunner& run);

/// The reason why `tool` did not download the package, from its exit code and output, and the next
/// step. A clause without a full stop.
[[nodiscard]] std::string why_not_downloaded(FetchTool tool, const CommandResult& result);

/// Downloads the recipe's package into `folder` and returns its path; its hash is the pinned one.
/// Throws UsageError that states the cause and what to do next.
[[nodiscard]] std::filesystem::path download(const FetchRecipe& recipe, const FetchOptions& options,
                                             const std::filesystem::path& folder,
                                             const CommandRunner& run);

}  // namespace lockstep::cli
