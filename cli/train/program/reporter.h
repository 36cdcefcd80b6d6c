// Prints the progress of a run and writes its metrics. Rank 0 does it for all ranks; on other ranks
// every function does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/train/program/progress.h"
#include "lockstep/base/environment.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

struct ReporterOptions {
  int rank = 0;
  std::string folder;
  std::int64_t resumed_at = 0;  // the number of steps at the start; 0: a new run
  bool tensorboard = true;
};

class Reporter {
 public:
  /// Opens the metrics of the run, on rank 0. Throws as MetricsLog does.
  Reporter(const ReporterOptions& options, const Environment& environment);

  /// Prints one or more lines on standard output.
  void say(std::string_view text) const;

  /// Whether to draw the live line now: there is a terminal, and enough time has passed.
  [[nodiscard]] bool live_due() const;
  void show_live(const Progress& progress);
  /// Prints a plain line if there is no terminal, at most one every few seconds.
  void show_plain(const Progress& progress);

  /// Writes a row of metrics.
  void write(const MetricRow& row);

  [[nodiscard]] bool speaks() const noexcept { return log_.has_value(); }
  /// The path of metrics.jsonl. Only on rank 0.
  [[nodiscard]] const std::string& metrics_path() const { return log_->path(); }

 private:
  std::optional<int> columns_;  // of the terminal, if there is one
  std::optional<MetricsLog> log_;
  std::chrono::steady_clock::time_point live_at_ = {};
  std::chrono::steady_clock::time_point plain_at_ = {};
};

}  // namespace lockstep::cli
