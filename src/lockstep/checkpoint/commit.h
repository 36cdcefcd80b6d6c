// The commit protocol of a checkpoint. A crash at any moment leaves the old checkpoint or the new
// one:
//
//   1. every rank writes its files, and its parts of shared files, into
//      step-<n>.tmp-<nonce>/, syncs each, and reports it to the committer           write_durably
//   2. the committer (rank 0) writes manifest.json there and syncs it               commit
//   3. it syncs the folder step-<n>.tmp-<nonce>                                     commit
//   4. it renames that folder to step-<n> and syncs the parent folder               commit
//   5. then it removes old checkpoints, but never the newest valid ones             prune
//
// A folder is a checkpoint only if its manifest verifies. An error in any step, above all in a
// sync, ends this checkpoint. Nothing is retried, and earlier checkpoints stay unchanged. Words:
// the folder is the one that contains all checkpoints of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/file_parts.h"
#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep {

/// "step-1200".
[[nodiscard]] std::string step_name(std::int64_t step);
/// The inverse of step_name; empty for any other name.
[[nodiscard]] std::optional<std::int64_t> try_step_of(std::string_view name) noexcept;
/// "<folder>/step-1200.tmp-<nonce>".
[[nodiscard]] std::string temporary_path(const std::string& folder, std::int64_t step,
                                         std::string_view nonce);

/// Writes the extents of `file` in the folder `where`, and syncs them. A file that is not shared
/// must not exist; a shared one is created by the rank that is first. Throws SystemError.
[[nodiscard]] FilePart write_durably(FileSystem& files, const std::string& where,
                                     const FileToWrite& file);
/// The same for a file that this process writes alone: `pieces`, concatenated.
[[nodiscard]] FileRecord write_durably(FileSystem& files, const std::string& where,
                                       const std::string& name,
                                       std::span<const std::span<const std::byte>> pieces);

/// Performs steps 2 to 4. Every file that `manifest` lists must be written and synced. Returns when
/// the checkpoint survives a loss of power. An existing folder of the same step, which the run has
/// not resumed from, is renamed to step-<n>.aside-<nonce> first. Throws SystemError.
void commit(FileSystem& files, const std::string& folder, std::string_view nonce,
            const Manifest& manifest);

/// Replaces the manifest of the committed checkpoint of the same step; both list the same files. A
/// crash at any moment leaves the old manifest or the new one. Returns when the new one survives a
/// loss of power. Throws SystemError.
void amend(FileSystem& files, const std::string& folder, const Manifest& manifest);

/// Renames every checkpoint newer than `step` to step-<n>.aside-<nonce>, durably, and returns their
/// steps. A run that has resumed from `step` must not find them later. Throws SystemError.
std::vector<std::int64_t> set_newer_aside(FileSystem& files, const std::string& folder,
                                          std::int64_t step, std::string_view nonce);

/// The checkpoints to keep. `newest` is at least 2.
struct KeptSteps {
  std::set<std::int64_t> valid = {};               // steps known to be valid
  int newest = 3;                                  // number of valid ones to keep
  std::map<std::string, std::int64_t> named = {};  // steps kept under a name
};

/// The members of `steps` to remove: those older than the `newest` valid ones, except the named.
/// Empty if there are fewer than `newest` valid ones.
[[nodiscard]] std::vector<std::int64_t> steps_to_remove(std::span<const std::int64_t> steps,
                                                        const KeptSteps& keep);

/// Removes steps_to_remove(). Returns one sentence for each file or folder that could not be
/// removed. Like sweep(), it removes only names that lockstep writes, and never follows a symbolic
/// link.
std::vector<std::string> prune(FileSystem& files, const std::string& folder, const KeptSteps& keep,
                               std::string_view nonce);

/// The result of sweep().
struct Swept {
  std::vector<std::string> removed = {};  // names in the folder
  std::vector<std::string> stays = {};    // one sentence per file or folder that was not removed
};

/// Removes the remains of interrupted saves and removals: step-<n>.tmp-<nonce> and
/// step-<n>.gone-<nonce>. Called only by the process that holds the folder's lock. Throws
/// SystemError if the folder is unreadable.
Swept sweep(FileSystem& files, const std::string& folder);

/// Removes the folder of a checkpoint. Errors are ignored: sweep() removes what remains.
void remove_quietly(FileSystem& files, const std::string& path) noexcept;

}  // namespace lockstep
