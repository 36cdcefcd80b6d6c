#include "cli/ckpt/program/checkpoint_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "cli/arguments.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::cli {
namespace {

bool holds(const std::vector<std::string>& names, const char* name) {
  return std::ranges::find(names, name) != names.end();
}

std::string folder_of(const std::string& path, const std::vector<std::string>& names) {
  return holds(names, "checkpoints") ? path + "/checkpoints" : path;
}

// The checkpoint of a path such as runs/mine/best, which is not a folder.
std::string kept_at(FileSystem& files, const std::string& path) {
  const auto slash = path.rfind('/');
  const auto run = slash == std::string::npos ? std::string(".") : path.substr(0, slash);
  const auto names = files.list(run);
  if (!names) throw UsageError(fmt::format("the folder {} does not exist", path));
  const auto folder = folder_of(run, *names);
  const auto kept = kept_steps(files, folder);
  const auto found = kept.find(slash == std::string::npos ? path : path.substr(slash + 1));
  if (found != kept.end()) return folder + "/" + step_name(found->second);
  std::vector<std::string> others;
  for (const auto& [name, step] : kept) others.push_back(name);
  throw UsageError(fmt::format(
      "the folder {} does not exist, and {} has {}", path, run,
      others.empty() ? "no kept checkpoint of that name"
                     : fmt::format("only these kept checkpoints: {}", fmt::join(others, ", "))));
}

}  // namespace

PathArguments read_path_arguments(const std::string& verb,
                                  const std::vector<std::string>& arguments) {
  PathArguments given;
  Arguments declared(verb, given.help);
  declared.flag("--json", given.as_json);
  declared.option("path", given.path);
  declared.read(arguments);
  if (given.path.empty() && !given.help) {
    throw UsageError("no path is given: name the folder of a run or of a checkpoint");
  }
  return given;
}

CheckpointPaths find_checkpoints(FileSystem& files, const std::string& path) {
  const auto names = files.list(path);
  if (!names) return {path, {kept_at(files, path)}, true};
  if (holds(*names, kManifestName)) return {path, {path}, true};
  const auto folder = folder_of(path, *names);
  CheckpointPaths found{folder, {}, false};
  for (const auto step : list_steps(files, folder)) {
    found.paths.push_back(folder + "/" + step_name(step));
  }
  if (found.paths.empty()) {
    throw UsageError(
        fmt::format("{} is not a checkpoint (it has no {}) and not the folder of a run with "
                    "checkpoints (there is no step-<n> in {})",
                    path, kManifestName, folder));
  }
  return found;
}

ValidCheckpoint newest_valid_at(FileSystem& files, const std::string& path) {
  const auto found = find_checkpoints(files, path);
  if (found.is_one) return verify_checkpoint(files, found.paths.front());
  for (const auto& candidate : found.paths) {
    try {
      return verify_checkpoint(files, candidate);
    } catch (const Error& error) {
      std::cerr << fmt::format("skipped {}: {}\n", candidate, error.what());
    }
  }
  throw UsageError(
      fmt::format("none of the {} checkpoints in {} is valid; `lockstep ckpt verify {}` "
                  "prints the reasons",
                  found.paths.size(), found.folder, path));
}

std::string size_words(std::uint64_t bytes) {
  constexpr std::array kUnits{"KB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1e3;
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1e3;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace lockstep::cli
