#include "cli/top/find_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/trace/run_pages.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// A link whose launcher has ended leads nowhere, but it is there.
bool has_pages(const fs::path& folder) {
  std::error_code error;
  return fs::exists(fs::symlink_status(folder / RunPages::kFileName, error));
}

std::optional<fs::path> try_newest_launch(const fs::path& folder) {
  std::optional<fs::path> newest;
  for (int number = 1;; ++number) {
    auto launch = folder / "launches" / std::to_string(number);
    std::error_code error;
    if (!fs::exists(launch, error)) return newest;
    if (has_pages(launch)) newest = std::move(launch);
  }
}

std::optional<fs::path> try_pages_folder(const fs::path& folder) {
  if (has_pages(folder)) return folder;
  return try_newest_launch(folder);
}

}  // namespace

std::string find_pages_folder(const std::string& folder) {
  if (!folder.empty()) {
    if (const auto found = try_pages_folder(folder)) return *found;
    throw UsageError(fmt::format(
        "{} is not the folder of a run: `lockstep run` prints it at the start (\"logs in …\"), "
        "`lockstep train` has it as --run; runs of other launchers have no pages to show",
        folder));
  }
  std::optional<fs::path> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("runs", error)) {
    const auto found = try_pages_folder(entry.path());
    if (!found) continue;
    const auto time = [](const fs::path& path) {
      std::error_code ignored;
      return fs::last_write_time(path, ignored);
    };
    if (!newest || time(*found) > time(*newest)) newest = found;
  }
  if (newest) return *newest;
  throw UsageError("there is no run in runs/: give the folder of a run, as `lockstep top RUN`");
}

}  // namespace lockstep::cli
