// The end of a run: its summary and what stays in its folder.
#pragma once

#include <cstdint>
#include <string>

#include "cli/train/program/summary.h"
#include "cli/train/run_start.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/flat_parameters.h"

namespace lockstep::cli {

/// The digest of all parameters, which is the same on every rank. Collective: every rank calls
/// this. Throws PeerError naming the first rank whose parameters are not bitwise equal to those of
/// rank 0.
[[nodiscard]] std::uint64_t equal_digest(const FlatParameters& flat, const ProcessGroup& group);

/// Why a run ended, for its summary. `since` counts the evaluations since the best one.
[[nodiscard]] std::string end_reason(std::int64_t steps, bool gave_up, std::int64_t since);

/// Writes summary.txt and finished.json into the run's folder; returns the summary. One rank calls
/// this. Throws SystemError.
std::string write_end(const SavedConfig& saved, const SummaryFacts& facts);

/// For a run that had ended before and was asked for nothing more: writes finished.json again, and
/// leaves the summary as it is. Returns what to say. One rank calls this. Throws SystemError.
std::string write_end_again(const SavedConfig& saved, const SummaryFacts& facts);

}  // namespace lockstep::cli
