// What a person sees of a run, and what stays in its files: rank 0 speaks and writes for all; on
// other ranks nothing happens.
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
  std::int64_t resumed_at = 0;  // the steps that were done before
  bool tensorboard = true;
};

class Reporter {
 public:
  /// Opens the metrics of the run on rank 0. Throws as MetricsLog does.
  Reporter(const ReporterOptions& options, const Environment& environment);

  /// A line, or several, on standard output.
  void say(std::string_view text) const;

  /// Whether a live line would be drawn now: there is a terminal, and the last one is old enough.
  [[nodiscard]] bool live_due() const;
  void show_live(const Progress& progress);
  /// A plain line where no live line is drawn, and not more often than every few seconds.
  void show_plain(const Progress& progress);

  /// A row of metrics.
  void write(const MetricRow& row);

  [[nodiscard]] bool speaks() const noexcept { return log_.has_value(); }
  /// Of metrics.jsonl; on rank 0.
  [[nodiscard]] const std::string& metrics_path() const { return log_->path(); }

 private:
  std::optional<int> columns_;  // of a terminal
  std::optional<MetricsLog> log_;
  std::chrono::steady_clock::time_point live_at_ = {};
  std::chrono::steady_clock::time_point plain_at_ = {};
};

}  // namespace lockstep::cli
