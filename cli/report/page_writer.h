// Writes report.html into the folder of a run, and writes it again as the run continues.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/report/run_metrics.h"

namespace lockstep::cli {

class PageWriter {
 public:
  /// The folder of a run.
  explicit PageWriter(std::string folder);

  /// Reads what is new and replaces report.html atomically. The page of an active run reloads
  /// itself after `reload`; nullopt: the run is not active. Throws SystemError, and UsageError if
  /// the folder is none of a run.
  void write(std::optional<std::chrono::seconds> reload);

  [[nodiscard]] std::string path() const { return folder_ + "/report.html"; }

 private:
  std::string folder_;
  MetricsReader reader_;
};

}  // namespace lockstep::cli
