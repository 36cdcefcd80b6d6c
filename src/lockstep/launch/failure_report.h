// Which rank's failure explains the others', and the block that tells a person about it. The block
// is the last thing that is printed.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "lockstep/launch/rank_outcome.h"

namespace lockstep {

/// The rank that failed first, of those that were not told to end: their failures are ours. One
/// that was killed or crashed comes before those that exited at the same time: they did so because
/// of it. Nothing when there is none.
[[nodiscard]] std::optional<std::size_t> find_culprit(std::span<const RankOutcome> ranks);

/// What the block says beside the ranks.
struct FailureFacts {
  RunCause cause = RunCause::rank_failed;
  int signal = 0;            // that told the launcher to end
  std::string program = {};  // as the user wrote it
  std::string run_folder = {};
  std::string reason = {};  // of a cause that is no rank's: a sentence
  int restarts = 0;
};

/// The block, each line ended with \n. Empty when the run finished.
[[nodiscard]] std::string failure_block(std::span<const RankOutcome> ranks,
                                        const FailureFacts& facts);

}  // namespace lockstep
