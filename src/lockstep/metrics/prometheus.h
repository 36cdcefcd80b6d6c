// The text format of Prometheus, version 0.0.4. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/metrics/metrics_log.h"

namespace lockstep {

enum class PrometheusType { gauge, counter };

struct PrometheusSample {
  std::vector<std::pair<std::string, std::string>> labels = {};
  double value = 0;
};

/// The samples of one metric. Units are base units: seconds, bytes.
struct PrometheusFamily {
  std::string name;  // "lockstep_rank_step"; of a counter, it ends with _total
  std::string help;
  PrometheusType type = PrometheusType::gauge;
  std::vector<PrometheusSample> samples = {};
};

/// Throws UsageError for a name that Prometheus does not allow.
[[nodiscard]] std::string to_prometheus(std::span<const PrometheusFamily> families);

/// The numbers of a row as gauges: "loss" of a train row is lockstep_train_loss, "step_ms" is
/// lockstep_train_step_seconds, and lockstep_train_step is the row's step.
[[nodiscard]] std::vector<PrometheusFamily> prometheus_of(const MetricRow& row);

/// The last train row and the last eval row of the metrics.jsonl at `path`, from its last 256 KiB:
/// it takes the same time for any length. Empty if there is no such file.
[[nodiscard]] std::vector<MetricRow> last_rows(const std::string& path);

}  // namespace lockstep
