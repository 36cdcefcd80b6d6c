// What the metrics listener of a job serves (metrics_listener.h).
#pragma once

#include <string>

#include "lockstep/trace/run_pages.h"

namespace lockstep {

/// The state of every rank, and the last train and eval rows of the metrics.jsonl in `folder`, as
/// text for Prometheus.
[[nodiscard]] std::string job_metrics(const RunState& run, const std::string& folder);

}  // namespace lockstep
