// The steps that `lockstep bench comm` takes in the same way when it starts ranks on this machine
// and when a launcher has started it as the ranks of a job.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "cli/bench/comm/options.h"
#include "cli/bench/comm/report.h"

namespace lockstep::cli {

/// The request for the cases of the options on `ranks` ranks, with the memory that they use.
/// on_one_host and processors are the caller's. Throws UsageError for a case that does not fit.
[[nodiscard]] CommRequest plan_request(const BenchCommOptions& options, int ranks,
                                       std::size_t last_level_cache);

/// The number of rounds: as given, else 3 where backends take turns.
[[nodiscard]] int rounds_of(const BenchCommOptions& options);

/// Of the last minute; nullopt if the machine does not tell.
[[nodiscard]] std::optional<double> load_average();
[[nodiscard]] std::string host_name();

/// Fills names, abouts and rows of the report from answers[backend][round], prints the table and
/// writes the files of the options.
void finish_report(CommReport& report, const std::vector<std::vector<CommAnswer>>& answers,
                   const BenchCommOptions& options, std::ostream& out);

}  // namespace lockstep::cli
