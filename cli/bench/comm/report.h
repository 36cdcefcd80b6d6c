// The results of `lockstep bench comm` as numbers, and their three formats: a table for people,
// JSON for programs, a chart. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/comm/request.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {

/// One backend on one case. Times are seconds, each the maximum over all ranks. Over the rounds,
/// p50, p99, hot and add_bytes_per_second are medians; max is the maximum.
struct CommFigures {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
  double hot = 0;                   // p50 of calls on one buffer
  double add_bytes_per_second = 0;  // lockstep's backend only
  int iterations = 0;               // over all rounds
  std::vector<double> round_p50 = {};
};

struct CommRow {
  CommCase timed = {};
  std::vector<std::optional<CommFigures>> backends = {};  // in the order of CommReport::names
};

struct CommHost {
  std::string name = {};
  std::vector<int> ranks = {};
};

struct CommReport {
  CommRequest request = {};
  Machine machine = {};  // of rank 0
  std::vector<CommHost> hosts = {};
  std::optional<double> load = {};  // load average of the last minute
  int rounds = 1;
  std::string build = {};                // "Release"
  std::vector<std::string> names = {};   // of the backends; lockstep's is the first
  std::vector<std::string> abouts = {};  // name and version, as each backend reports it
  std::vector<CommRow> rows = {};
};

/// Derived figures of lockstep's backend.
struct CommRates {
  double algorithm_bandwidth = 0;  // S / p50, bytes per second
  double bus_bandwidth = 0;
  double bound = 0;  // seconds of the minimum traffic at the rate of in-place adds; 0 without these
  double bound_share = 0;  // bound / p50
};
[[nodiscard]] CommRates rates_of(const CommRow& row, int ranks);

/// The value that a `fraction` (0 to 1) of `values` does not exceed. Requires at least one value.
[[nodiscard]] double percentile(std::vector<double> values, double fraction);

/// Combines the samples of a backend's rounds. Requires at least one round.
[[nodiscard]] CommFigures combine_rounds(const std::vector<CommSamples>& rounds);

/// The rows of the report, from answers[backend][round]. The cases of a peer are those of
/// peer_request().
[[nodiscard]] std::vector<CommRow> rows_of(const CommRequest& request,
                                           const std::vector<std::vector<CommAnswer>>& answers);

/// "2 ranks on 2 cores", "4 ranks on 2 hosts".
[[nodiscard]] std::string ranks_in_words(const CommReport& report);
/// Ranks, processors and buffers, above the table. Lines of both have at most 100 columns.
[[nodiscard]] std::string header_text(const CommReport& report);
[[nodiscard]] std::string table_text(const CommReport& report);
/// docs/bench.md documents the schema.
[[nodiscard]] std::string json_text(const CommReport& report);
/// Time over size, both logarithmic: one chart per op and dtype, one line per backend and kind of
/// memory, and the bound.
[[nodiscard]] std::string svg_text(const CommReport& report);

}  // namespace lockstep::cli
