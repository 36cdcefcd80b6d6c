// How a checkpoint comes to be, so that a crash at any moment leaves the old one or the new one:
//
//   1. every rank writes its files into step-<n>.tmp-<nonce>/ and syncs each        write_durably
//   2. the committer (rank 0) writes manifest.json there and syncs it               commit
//   3. it syncs the folder step-<n>.tmp-<nonce>                                     commit
//   4. it renames that folder to step-<n> and syncs the folder above                commit
//   5. only then are old checkpoints removed, the newest valid ones never           prune
//
// A folder without a manifest that verifies is no checkpoint. An error on the way, of a sync above
// all, ends this checkpoint; nothing is tried again, and what was committed before stays as it is.
// Words: the folder is the one that holds all checkpoints of a run.
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

#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep {

/// "step-1200".
[[nodiscard]] std::string step_name(std::int64_t step);
/// The step of a name that step_name gives; nothing for any other name.
[[nodiscard]] std::optional<std::int64_t> try_step_of(std::string_view name) noexcept;
/// "<folder>/step-1200.tmp-<nonce>".
[[nodiscard]] std::string temporary_path(const std::string& folder, std::int64_t step,
                                         std::string_view nonce);

/// Writes the file `name` of `pieces`, one behind the other, into the folder `where`, and syncs it.
/// The lengths of all pieces but the last are multiples of 8. Throws SystemError.
[[nodiscard]] FileRecord write_durably(FileSystem& files, const std::string& where,
                                       const std::string& name,
                                       std::span<const std::span<const std::byte>> pieces);

/// Steps 2 to 4, once every file that `manifest` lists is there and synced. Returns when the
/// checkpoint survives a loss of power. A checkpoint of the same step that is in the way, which is
/// not the one the run goes on from, is set aside first. Throws SystemError.
void commit(FileSystem& files, const std::string& folder, std::string_view nonce,
            const Manifest& manifest);

/// Puts `manifest` in the place of the one that the committed checkpoint of its step has, which
/// lists the same files: a crash at any moment leaves the old one or the new one. Returns when the
/// new one survives a loss of power. Throws SystemError.
void amend(FileSystem& files, const std::string& folder, const Manifest& manifest);

/// Renames every checkpoint of a step after `step` to step-<n>.aside-<nonce>, durably, and returns
/// those steps: a run that went on from an older one must not find them later. Throws SystemError.
std::vector<std::int64_t> set_newer_aside(FileSystem& files, const std::string& folder,
                                          std::int64_t step, std::string_view nonce);

/// Which checkpoints stay. `newest` is at least 2.
struct KeptSteps {
  std::set<std::int64_t> valid = {};               // steps known to be whole
  int newest = 3;                                  // so many of those
  std::map<std::string, std::int64_t> named = {};  // and these steps, by what they are kept as
};

/// Those of `steps` to remove: all older than the newest valid ones that stay, but for the named;
/// none when there are fewer valid ones.
[[nodiscard]] std::vector<std::int64_t> steps_to_remove(std::span<const std::int64_t> steps,
                                                        const KeptSteps& keep);

/// Removes them. Returns one sentence for each thing that could not be removed. Like sweep(), it
/// removes only names that lockstep writes, and never follows a symbolic link.
std::vector<std::string> prune(FileSystem& files, const std::string& folder, const KeptSteps& keep,
                               std::string_view nonce);

/// What sweep() has found.
struct Swept {
  std::vector<std::string> removed = {};  // names in the folder
  std::vector<std::string> stays = {};    // one sentence for each thing that could not be removed
};

/// Removes what saves and removals that were cut short have left: step-<n>.tmp-<nonce> and
/// step-<n>.gone-<nonce>. Only by the process that has the folder's lock. Throws SystemError when
/// the folder cannot be listed.
Swept sweep(FileSystem& files, const std::string& folder);

/// Removes the folder of a checkpoint; what cannot be removed stays, for sweep().
void remove_quietly(FileSystem& files, const std::string& path) noexcept;

}  // namespace lockstep
