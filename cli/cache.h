// Where fetched data lies: one folder a user, shared by all checkouts.
#pragma once

#include <filesystem>

#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// lockstep/data in XDG_CACHE_HOME, else in ~/.cache. Throws UsageError when HOME is not set
/// either.
[[nodiscard]] std::filesystem::path data_cache(const Environment& environment);

}  // namespace lockstep::cli
