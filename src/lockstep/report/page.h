// The page of a run: one HTML file without references to other files. A pure function.
#pragma once

#include <string>

#include "lockstep/report/run_record.h"

namespace lockstep {

struct PageOptions {
  double now = 0;           // seconds since 1970: when the page is written
  double reload_after = 0;  // seconds; the page of an active run reloads itself after this time
  std::string version = {};
};

/// The complete HTML text. The page of a run that is not active does not reload itself.
[[nodiscard]] std::string run_page(const RunRecord& run, const PageOptions& options);

}  // namespace lockstep
