// Finds the checkpoint that a run resumes from, and loads it.
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
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// The tracked objects by name, in the order of saving.
using Parts = std::vector<std::pair<std::string, std::unique_ptr<Tracked>>>;

/// The tensors of `thing` that each rank saves.
[[nodiscard]] NamedTensors own_tensors(Tracked& thing);

/// The newest checkpoint that is valid on every rank; empty if no rank sees a checkpoint. The ranks
/// of a host verify it together (shared_check_internal.h). Collective. Logs each skipped
/// checkpoint. Throws as decide_common does.
[[nodiscard]] std::optional<ValidCheckpoint> newest_common(FileSystem& files,
                                                           const std::string& folder,
                                                           const World& world,
                                                           const ProcessGroup& group,
                                                           const Log& log);

/// Throws UsageError if the checkpoint's seed or data differs from `options`; an import has
/// neither. Rank 0 logs a different configuration or number of threads.
void expect_same_run(const Manifest& saved, const RunOptions& options, int rank, const Log& log);

/// Loads the checkpoint into the parts: JSON values first; then, if the tensors of all parts match,
/// their bytes. If the checkpoint is from a world of another size, which is logged, per-rank
/// objects are derived from the seed, and rank_tensors() are sums of those of the saved ranks
/// (tracked.h). Throws UsageError naming every difference.
void load_parts(FileSystem& files, const ValidCheckpoint& checkpoint, const Parts& parts, int rank,
                int world, const Log& log);

}  // namespace lockstep
