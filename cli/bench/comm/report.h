// What `lockstep bench comm` found, as numbers, and the three ways it is written: a table for
// people, JSON for programs, a chart. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench/comm/request.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {

/// One engine on one case. Times are seconds, each the longest of all ranks; over the rounds p50,
/// p99, hot and add are medians, max is the largest.
struct CommFigures {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
  double hot = 0;                   // p50 on the same buffer each time
  double add_bytes_per_second = 0;  // our engine alone
  int iterations = 0;               // of all rounds
  std::vector<double> round_p50 = {};
};

struct CommRow {
  CommCase timed = {};
  std::vector<std::optional<CommFigures>> engines = {};  // as the report's names
};

struct CommReport {
  CommRequest request = {};
  Machine machine = {};
  std::optional<double> load = {};  // processes that ran or wanted to, over the last minute
  int rounds = 1;
  std::string build = {};                // "Release"
  std::vector<std::string> names = {};   // of the engines; ours is the first
  std::vector<std::string> abouts = {};  // what they say of themselves
  std::vector<CommRow> rows = {};
};

/// Derived figures of our engine.
struct CommRates {
  double algorithm_bandwidth = 0;  // S / p50, bytes per second
  double bus_bandwidth = 0;
  double bound = 0;        // seconds that the least traffic takes at the in-place add's rate
  double bound_share = 0;  // bound / p50
};
[[nodiscard]] CommRates rates_of(const CommRow& row, int ranks);

/// The value that `share` (0 to 1) of `values` do not exceed. Needs at least one value.
[[nodiscard]] double percentile(std::vector<double> values, double share);

/// Joins the samples of an engine's rounds. Needs at least one.
[[nodiscard]] CommFigures join_rounds(const std::vector<CommSamples>& rounds);

/// answers[engine][round]; a peer's cases are those of peer_request.
[[nodiscard]] std::vector<CommRow> rows_of(const CommRequest& request,
                                           const std::vector<std::vector<CommAnswer>>& answers);

/// Who is timed, where it runs, what the buffers are: lines of at most 100 columns, as the table's.
[[nodiscard]] std::string header_text(const CommReport& report);
[[nodiscard]] std::string table_text(const CommReport& report);
/// docs/bench.md has the schema.
[[nodiscard]] std::string json_text(const CommReport& report);
/// Time over size, both logarithmic: one chart an op and type, one line an engine and kind of
/// memory, and the bound.
[[nodiscard]] std::string svg_text(const CommReport& report);

}  // namespace lockstep::cli
