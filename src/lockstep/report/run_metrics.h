// The metrics of a run in the form that charts need: columns of numbers, intervals by rank, events.
// Read from metrics.jsonl in pieces, so that a report of a running job reads only what is new.
//
// The rule of metrics_log.h holds: a start line invalidates earlier rows with later steps. Events
// stay: a fault happened, even if its step is repeated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/report/flat_line.h"
#include "lockstep/trace/rank_interval.h"

namespace lockstep {

/// Rows of one kind. All columns have one value per row; NaN where a row has none.
struct MetricColumns {
  std::vector<double> step = {};
  std::vector<double> time = {};  // seconds since 1970
  std::vector<std::string> names = {};
  std::vector<std::vector<double>> values = {};  // by name

  /// The column called `name`; nullptr if there is none.
  [[nodiscard]] const std::vector<double>* find(std::string_view name) const;
  /// The last finite value of a column.
  [[nodiscard]] std::optional<double> last(std::string_view name) const;
};

struct SampleText {
  std::int64_t step = 0;
  std::string text = {};
};

struct RunEvent {
  std::int64_t step = 0;
  double time = 0;
  std::string event = {};  // "save", "fault", …: docs/metrics.md
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::string> texts = {};
};

/// From a start line to the last row before the next one, in seconds since 1970.
struct RunSession {
  double begin = 0;
  double end = 0;
};

struct RunMetrics {
  MetricColumns train = {};
  MetricColumns eval = {};
  std::vector<SampleText> samples = {};               // of eval rows
  std::vector<std::vector<RankInterval>> ranks = {};  // by rank; merged where there are many
  std::vector<BucketFigures> buckets = {};            // of the newest step
  std::int64_t buckets_step = -1;
  std::vector<RunEvent> events = {};  // in the order of the file
  std::vector<RunSession> sessions = {};
  double last_time = 0;          // of the newest row
  std::int64_t num_invalid = 0;  // lines that are not rows

  /// The newest step of any row; 0 without rows.
  [[nodiscard]] std::int64_t last_step() const;
};

class MetricsReader {
 public:
  /// The path of a metrics.jsonl; it need not exist yet.
  explicit MetricsReader(std::string path);

  /// Reads the complete lines that were appended since the last call. Returns whether there were
  /// any. A file that has become shorter is read from its beginning. Throws SystemError when the
  /// file exists and is not readable.
  bool read_more();

  [[nodiscard]] const RunMetrics& metrics() const noexcept { return metrics_; }

 private:
  void add(std::string_view line);
  void add_row(MetricColumns& columns);
  void add_rank();
  void add_bucket();
  void add_event();
  void restart();

  std::string path_;
  std::int64_t offset_ = 0;  // of the first byte that was not read
  FlatLine line_;
  RunMetrics metrics_;
};

}  // namespace lockstep
