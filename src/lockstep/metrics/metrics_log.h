// What a run measures, row by row, in files of its folder:
//   metrics.jsonl                     the truth: one object a line, in the order of writing
//   metrics.csv, metrics_eval.csv     the numbers of train and eval rows as tables
//   tensorboard/events.out.tfevents…  the same for TensorBoard, a new file a start
//
//   {"kind":"start","format":"lockstep-metrics","version":1,"time":1763265600.125,"after":null}
//   {"kind":"train","step":10,"time":1763265601.5,"loss":5.25,"tokens_per_second":41000}
//
// A run that goes on after step n adds a line of kind start with "after":n. What lines before it
// say of later steps is void: those steps are done again. The tables have only what counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/metrics/csv_writer.h"
#include "lockstep/metrics/tensorboard_file.h"

namespace lockstep {

enum class MetricKind {
  train,  // measured while training
  eval,   // measured on held-out data
  event   // something happened: in no table
};

/// NaN and infinities are null in JSON, and are read back as NaN. Texts are in no table.
using MetricValue = std::variant<double, std::int64_t, std::string>;

struct Metric {
  std::string name;  // of letters, digits, _ . - and /; not kind, step or time
  MetricValue value;

  friend bool operator==(const Metric&, const Metric&) = default;
};

struct MetricRow {
  std::int64_t step = 0;  // how many steps were done
  MetricKind kind = MetricKind::train;
  std::vector<Metric> metrics = {};  // each name once, written in this order

  friend bool operator==(const MetricRow&, const MetricRow&) = default;
};

struct MetricsLogOptions {
  std::optional<std::int64_t> after = {};  // the step that a resumed run goes on from; none: anew
  bool csv = true;
  bool tensorboard = true;
};

class MetricsLog {
 public:
  /// Makes `folder` where it is missing, and opens the files in it. A line that a crash has cut off
  /// is taken away. One rank has one for a folder, rank 0 as a rule. Throws SystemError, and
  /// UsageError for a file of that name that is something else.
  explicit MetricsLog(const std::string& folder, const MetricsLogOptions& options = {});

  /// Writes `row` to every file, with the time of now, before it returns; whoever kills the program
  /// after that does not lose it. One thread at a time. Throws SystemError, and UsageError for a
  /// name that cannot be.
  void write(const MetricRow& row);

  /// Of metrics.jsonl.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void write_line(const std::string& line);

  std::string path_;
  FileDescriptor file_;
  std::map<MetricKind, CsvWriter> tables_;
  std::optional<TensorBoardFile> tensorboard_;
};

/// The rows of a metrics.jsonl that count, in the order of the file; a last line that was cut off
/// is left out. Safe while the file is being written. Throws SystemError when it cannot be read,
/// UsageError with the line's number when it is something else.
[[nodiscard]] std::vector<MetricRow> read_metrics(const std::string& path);

}  // namespace lockstep
