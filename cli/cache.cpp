#include "cli/cache.h"

#include "lockstep/base/error.h"

namespace lockstep::cli {

std::filesystem::path data_cache(const Environment& environment) {
  const auto cache = environment.find("XDG_CACHE_HOME");
  if (cache && !cache->empty()) return std::filesystem::path(*cache) / "lockstep" / "data";
  const auto home = environment.find("HOME");
  if (!home || home->empty()) {
    throw UsageError(
        "neither XDG_CACHE_HOME nor HOME is set; set XDG_CACHE_HOME to the folder for fetched "
        "data");
  }
  return std::filesystem::path(*home) / ".cache" / "lockstep" / "data";
}

}  // namespace lockstep::cli
