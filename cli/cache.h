// The folder of fetched data: one per user, shared by all checkouts.
#pragma once

#include <filesystem>

#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// lockstep/data in XDG_CACHE_HOME, else in ~/.cache. Throws UsageError when neither
/// XDG_CACHE_HOME nor HOME is set.
[[nodiscard]] std::filesystem::path data_cache(const Environment& environment);

}  // namespace lockstep::cli
