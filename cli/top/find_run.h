// Finds the pages of the run that `lockstep top` shows.
#pragma once

#include <string>

namespace lockstep::cli {

/// The folder that has the pages: `folder` itself, or the newest launch of a run of `lockstep
/// train` (launches/<n>). If `folder` is empty, the newest run in runs/. Throws UsageError that
/// says where runs are.
[[nodiscard]] std::string find_pages_folder(const std::string& folder);

}  // namespace lockstep::cli
