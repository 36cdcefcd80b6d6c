// How a run finds the checkpoint that it resumes from, and loads it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/tracked.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// In the order they are saved in.
using Parts = std::vector<std::pair<std::string, std::unique_ptr<Tracked>>>;

/// The newest checkpoint that is valid on every rank; nothing when no rank sees any. Collective.
/// Logs each one passed over. Throws as decide_common.
[[nodiscard]] std::optional<ValidCheckpoint> newest_common(FileSystem& files,
                                                           const std::string& folder,
                                                           const ProcessGroup& group,
                                                           const Log& log);

/// Throws UsageError unless the checkpoint was made with the seed and the data of `options`; an
/// import was made with neither. Rank 0 logs what else is not as it was.
void expect_same_run(const Manifest& saved, const RunOptions& options, int rank, const Log& log);

/// Loads the checkpoint into the parts: JSON values first; then, when the tensors of all parts fit,
/// their bytes. What ranks have of their own is derived anew, and logged, when the checkpoint is
/// from a world of another size. Throws UsageError naming everything that does not fit.
void load_parts(FileSystem& files, const ValidCheckpoint& checkpoint, const Parts& parts, int rank,
                int world, const Log& log);

}  // namespace lockstep
