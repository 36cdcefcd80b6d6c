// The end of a run: the digest of its parameters, summary.txt and finished.json.
#pragma once

#include <cstdint>
#include <string>

#include "cli/train/program/summary.h"
#include "cli/train/run_start.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/flat_parameters.h"

namespace lockstep::cli {

/// The digest of all parameters. Collective: every rank calls this; all get the same value. Throws
/// PeerError naming the first rank whose parameters are not bitwise equal to those of rank 0.
[[nodiscard]] std::uint64_t equal_digest(const FlatParameters& flat, const ProcessGroup& group);

/// The reason for the end of a run, for its summary. `since` is the number of evaluations since the
/// best one.
[[nodiscard]] std::string end_reason(std::int64_t steps, bool gave_up, std::int64_t since);

/// Writes summary.txt and finished.json into the run's folder; returns the summary. One rank calls
/// this. Throws SystemError.
std::string write_end(const SavedConfig& saved, const SummaryFacts& facts);

/// For a run that has already done the requested steps: writes finished.json and keeps the summary.
/// Returns the message for the user. One rank calls this. Throws SystemError.
std::string write_end_again(const SavedConfig& saved, const SummaryFacts& facts);

}  // namespace lockstep::cli
