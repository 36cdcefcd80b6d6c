// Finds the rank whose failure caused the others, and writes the failure report for a person. The
// report is the last output of the launcher.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "lockstep/launch/rank_outcome.h"

namespace lockstep {

/// The index of the rank that failed first, without those that the launcher told to end. A rank
/// that was killed or crashed has priority over ranks that exited at the same time: they exited
/// because of it. nullopt when there is none.
[[nodiscard]] std::optional<std::size_t> find_culprit(std::span<const RankOutcome> ranks);

/// The facts of the report besides the ranks.
struct FailureFacts {
  RunCause cause = RunCause::rank_failed;
  int signal = 0;            // that ended the launcher; 0: none
  std::string program = {};  // as the user wrote it
  std::string run_folder = {};
  std::string reason = {};  // a sentence, for a failure that no local rank caused
  int restarts = 0;
};

/// The report; each line ends with \n. Empty when the run finished.
[[nodiscard]] std::string failure_block(std::span<const RankOutcome> ranks,
                                        const FailureFacts& facts);

}  // namespace lockstep
