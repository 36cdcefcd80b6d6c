// Several runs side by side: the settings that differ, the step at which their curves part, and
// what grows with the number of ranks. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/report/page.h"
#include "lockstep/report/run_record.h"
#include "lockstep/trace/step_split.h"

namespace lockstep {

struct SettingDifference {
  std::string name = {};
  std::vector<std::string> values = {};  // by run; empty: the run has no such setting
};

/// The settings whose values are not the same in all runs, and the number of ranks.
[[nodiscard]] std::vector<SettingDifference> setting_differences(std::span<const RunRecord> runs);

/// Where two curves part. The noise is that of their difference: the part of it that changes from
/// row to row. Curves part where the mean of a few differences exceeds four times the standard
/// error of such a mean, and stays on the same side in the next rows.
struct CurveParting {
  std::int64_t num_common = 0;                  // rows with the same step
  bool identical = false;                       // all common rows are equal
  std::optional<std::int64_t> first_step = {};  // nullopt: they do not part
  double noise = 0;                             // standard deviation of a row's difference
  double last_difference = 0;                   // mean over the last rows, second minus first
};

/// Compares a column, for example "loss", of two tables at their common steps.
[[nodiscard]] CurveParting find_parting(const MetricColumns& first, const MetricColumns& second,
                                        std::string_view column);
/// "part at step 1,200", "are identical in all 60 rows", …
[[nodiscard]] std::string in_words(const CurveParting& parting);

/// What one more rank costs: the time per step by kind, of the run with the fewest ranks and that
/// with the most.
struct ScalingAnswer {
  std::size_t small = 0;  // index of the run
  std::size_t large = 0;
  double step_ms[2] = {};
  double data_wait_ms[2] = {};
  double communication_ms[2] = {};  // exposed
  double gaps_ms[2] = {};           // checkpoint stalls and the loop itself
  double compute_ms[2] = {};        // forward, backward, optimizer
  double efficiency = 0;            // speed per rank of the large run against the small one
  std::string text = {};            // the answer in one sentence
};

/// nullopt if all runs have the same number of ranks, or one has no rank rows.
[[nodiscard]] std::optional<ScalingAnswer> scaling_answer(std::span<const RunRecord> runs);

/// The page of several runs. Requires at least two.
[[nodiscard]] std::string comparison_page(std::span<const RunRecord> runs,
                                          const PageOptions& options);
/// The same for a terminal.
[[nodiscard]] std::string comparison_text(std::span<const RunRecord> runs);

/// One run for a terminal: outcome, curve, figures, analysis, failure.
[[nodiscard]] std::string run_text(const RunRecord& run);

}  // namespace lockstep
