// The summary at the end of a run: results, paths, and the next commands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/train/program/evaluation.h"
#include "cli/train/program/meter.h"
#include "cli/train/saved_config.h"
#include "lockstep/metrics/metrics_log.h"

namespace lockstep::cli {

struct SummaryFacts {
  std::string command = "lockstep";  // as the user types it
  std::string folder;
  std::string why;       // end_reason()
  bool gave_up = false;  // its patience ended: too many evaluations without a new best
  std::int64_t steps = 0;
  std::vector<MetricRow> metrics = {};
  std::optional<EvalResult> validation = {};  // of the last evaluation
  std::optional<double> best_loss = {};
  std::int64_t best_step = 0;
  TimeSplit split = {};
  std::int64_t split_steps = 0;     // the number of steps in `split`
  std::int64_t units_per_step = 0;  // over all ranks
  std::string unit = {};
  int world = 1;
  std::uint64_t digest = 0;  // of the parameters, equal on all ranks
  std::int64_t failures = 0;
  std::string sample = {};
  std::vector<std::string> advice = {};  // one line each
};

[[nodiscard]] std::string summary_text(const SavedConfig& saved, const SummaryFacts& facts);

/// `text` with `indent` before each line, and with spaces in place of control characters.
[[nodiscard]] std::string quoted_text(std::string_view text, std::string_view indent);

}  // namespace lockstep::cli
