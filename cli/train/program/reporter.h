// Prints the progress of a run and writes its metrics. Rank 0 does it for all ranks; on other ranks
// every function does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/page_writer.h"
#include "cli/train/program/progress.h"
#include "lockstep/base/environment.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

struct ReporterOptions {
  int rank = 0;
  std::string folder;
  std::int64_t resumed_at = 0;  // the number of steps at the start; 0: a new run
  bool tensorboard = true;
  std::vector<std::string> data = {};  // the files of the run's data
};

class Reporter {
 public:
  /// Opens the metrics of the run, on rank 0. Throws as MetricsLog does. Under a launcher other
  /// than lockstep's, which writes neither environment.json nor report.html, rank 0 writes them:
  /// the page after each evaluation and at the end.
  Reporter(const ReporterOptions& options, const Environment& environment);
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;
  ~Reporter();

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
  std::optional<PageWriter> page_;  // under another launcher
  std::chrono::steady_clock::time_point live_at_ = {};
  std::chrono::steady_clock::time_point plain_at_ = {};
};

}  // namespace lockstep::cli
