// The parts of pages, each as HTML.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/report/chart.h"
#include "lockstep/report/run_record.h"
#include "lockstep/trace/run_analysis.h"

namespace lockstep {

/// Facts of a run that several parts use.
struct RunFigures {
  RunAnalysis analysis = {};
  std::optional<std::int64_t> total_steps = {};
  double units_per_step = 0;             // tokens or samples, over all ranks
  std::string unit = {};                 // "tokens", "samples"
  double begin = 0;                      // of the first start, seconds since 1970
  double end = 0;                        // of the newest row
  double active_seconds = 0;             // without the time between launches
  double seconds_per_step = 0;           // recent, with evaluations and saves
  std::optional<double> best_loss = {};  // of evaluations
  std::int64_t best_step = 0;
  std::int64_t saved_step = -1;  // of the newest save; -1: none
  double speed = 0;              // units per second, mean over the steps
};

[[nodiscard]] RunFigures figures_of(const RunRecord& run);

/// The analysis of T's rows, with the facts that events state.
[[nodiscard]] AnalysisInput analysis_input_of(const RunMetrics& metrics);

/// "Running", "Finished", …; and its CSS class.
[[nodiscard]] std::string outcome_word(RunOutcome outcome);
[[nodiscard]] std::string outcome_class(RunOutcome outcome);
/// One or two sentences: how the run went.
[[nodiscard]] std::string verdict_text(const RunRecord& run, const RunFigures& figures);

[[nodiscard]] std::vector<Chart> learning_charts(const RunRecord& run);
[[nodiscard]] std::vector<Chart> speed_charts(const RunRecord& run, const RunFigures& figures);
[[nodiscard]] std::vector<Chart> machine_charts(const RunRecord& run);
[[nodiscard]] std::string timeline_html(const RunRecord& run, const RunFigures& figures);
[[nodiscard]] std::string failure_html(const RunRecord& run);
[[nodiscard]] std::string samples_html(const RunRecord& run);
[[nodiscard]] std::string settings_html(const RunRecord& run);
[[nodiscard]] std::string environment_html(const RunRecord& run);
[[nodiscard]] std::string sample_record_html(const RunRecord& run, const RunFigures& figures);

/// The frame of every page: head with style, `body`, script.
[[nodiscard]] std::string whole_page(const std::string& title, const std::string& body,
                                     double reload_after);

/// "2026-11-17 07:33:09 UTC".
[[nodiscard]] std::string date_text(double seconds);

}  // namespace lockstep
