// Rows of kind rank, bucket and event as values of the analysis (trace/run_analysis.h), and back.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/metrics/metrics_log.h"
#include "lockstep/trace/run_analysis.h"

namespace lockstep {

/// Numbers are rounded to 4 decimals: a run has many of these rows.
[[nodiscard]] MetricRow to_row(const RankInterval& interval);
[[nodiscard]] MetricRow to_row(const BucketFigures& bucket, std::int64_t step);
/// The event row of one piece of advice.
[[nodiscard]] MetricRow to_row(const Advice& advice, std::int64_t step);

/// nullopt for a row of another kind. A figure that the row does not have is 0.
[[nodiscard]] std::optional<RankInterval> try_rank_interval(const MetricRow& row);
[[nodiscard]] std::optional<BucketFigures> try_bucket(const MetricRow& row);

/// All rows of kind rank, in the order of the file.
[[nodiscard]] std::vector<RankInterval> rank_intervals(std::span<const MetricRow> rows);
/// The rows of kind bucket of the last step that has some.
[[nodiscard]] std::vector<BucketFigures> newest_buckets(std::span<const MetricRow> rows);
/// The input of analyse(): the intervals since the last event start, the newest buckets, and the
/// facts of that event.
[[nodiscard]] AnalysisInput analysis_input(std::span<const MetricRow> rows);

}  // namespace lockstep
