// The metrics of a run, row by row, in files of its folder:
//   metrics.jsonl                     the complete record: one JSON object per line, only appended
//   metrics.csv, metrics_eval.csv     the numbers of train and eval rows as tables
//   tensorboard/events.out.tfevents…  the same for TensorBoard, one file per start
//
//   {"kind":"start","format":"lockstep-metrics","version":1,"time":1763265600.125,"after":null}
//   {"kind":"train","step":10,"time":1763265601.5,"loss":5.25,"tokens_per_second":41000}
//
// A run that resumes after step n appends a line of kind start with "after":n. Earlier lines with
// later steps, except events, are then invalid: the run repeats those steps. The tables contain
// only valid rows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/metrics/csv_writer.h"
#include "lockstep/metrics/tensorboard_file.h"

namespace lockstep {

enum class MetricKind {
  train,  // measured while training
  eval,   // measured on validation data
  // In metrics.jsonl only:
  event,  // something happened; the metric "event" says what
  rank,   // the figures of one rank over an interval (rank_rows.h)
  bucket  // the figures of one bucket of gradients
};

/// NaN and infinities are null in JSON and are read back as NaN. Texts are not in the tables.
using MetricValue = std::variant<double, std::int64_t, std::string>;

struct Metric {
  std::string name;  // letters, digits, _ . - and /; not kind, step or time
  MetricValue value;

  friend bool operator==(const Metric&, const Metric&) = default;
};

struct MetricRow {
  std::int64_t step = 0;  // the number of completed steps
  MetricKind kind = MetricKind::train;
  std::vector<Metric> metrics = {};  // each name once, written in this order
  double time = 0;                   // seconds since 1970; set by write() and read_metrics()

  /// Without the time.
  friend bool operator==(const MetricRow& a, const MetricRow& b) {
    return a.step == b.step && a.kind == b.kind && a.metrics == b.metrics;
  }
  /// The value of `name`; null if the row does not have it.
  [[nodiscard]] const MetricValue* find(std::string_view name) const noexcept;
  /// The same as a number; nullopt for a text too.
  [[nodiscard]] std::optional<double> number(std::string_view name) const noexcept;
  /// The same as a text; empty for a number too.
  [[nodiscard]] std::string text(std::string_view name) const;
};

/// Today's name of each renamed metric, by the name that an earlier version of the program wrote.
using RenamedMetrics = std::map<std::string, std::string>;

struct MetricsLogOptions {
  std::optional<std::int64_t> after =
      {};  // the step that the run resumes after; nullopt: a new run
  bool csv = true;
  bool tensorboard = true;
  RenamedMetrics renamed = {};  // columns of existing tables get their new names
};

class MetricsLog {
 public:
  /// Creates `folder` if it does not exist, and opens the files in it. Removes a last line that a
  /// crash has truncated. One rank calls this per folder, usually rank 0. Throws SystemError, and
  /// UsageError for an existing file with other contents.
  explicit MetricsLog(const std::string& folder, const MetricsLogOptions& options = {});

  /// Writes `row` to every file, with the current time (MetricRow::time is ignored). After it
  /// returns, the row survives the end of the process. One thread at a time. Throws SystemError,
  /// and UsageError for an invalid name.
  void write(const MetricRow& row);

  /// The path of metrics.jsonl.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void write_line(const std::string& line);

  std::string path_;
  FileDescriptor file_;
  std::map<MetricKind, CsvWriter> tables_;
  std::optional<TensorBoardFile> tensorboard_;
};

struct ReadMetricsOptions {
  RenamedMetrics renamed = {};  // metrics of earlier rows get their new names
};

/// Returns the valid rows of a metrics.jsonl, in the order of the file, without a truncated last
/// line. May be called while the file is being written. Throws SystemError when the file is not
/// readable, UsageError with the number of the line that is not a row of metrics.
[[nodiscard]] std::vector<MetricRow> read_metrics(const std::string& path,
                                                  const ReadMetricsOptions& options = {});

}  // namespace lockstep
