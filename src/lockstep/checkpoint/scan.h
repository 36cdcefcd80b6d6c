// Finds the valid checkpoints of a folder on this rank, and the one that all ranks resume from.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep {

/// A checkpoint whose manifest and files have been verified.
struct ValidCheckpoint {
  std::string path;
  Manifest manifest;
  std::uint64_t manifest_digest = 0;  // equal on ranks that see the same manifest
};

/// The `index`-th of `count` parts of each file.
struct FileSlice {
  int index = 0;
  int count = 1;
};

/// The steps of all folders step-<n>, newest first, valid or not.
[[nodiscard]] std::vector<std::int64_t> list_steps(FileSystem& files, const std::string& folder);

/// Reads the manifest in `path` and every byte of the files it lists. Throws UsageError or
/// SystemError with the expected and the found value.
[[nodiscard]] ValidCheckpoint verify_checkpoint(FileSystem& files, const std::string& path);
/// Reads only the manifest; the files are not checked. Throws as verify_checkpoint.
[[nodiscard]] ValidCheckpoint read_manifest(FileSystem& files, const std::string& path);
/// verify_checkpoint for `step` of `folder`. Throws UsageError too if the manifest has another
/// step.
[[nodiscard]] ValidCheckpoint verify_step(FileSystem& files, const std::string& folder,
                                          std::int64_t step);

/// Reads the manifest of `step` and the lengths of the files that it lists, but not their bytes.
/// Throws as verify_step.
[[nodiscard]] ValidCheckpoint open_step(FileSystem& files, const std::string& folder,
                                        std::int64_t step);
/// The digests of `slice` of each file of an opened checkpoint, in the order of the manifest. The
/// sums over all slices are the digests of the files. Throws SystemError, UsageError.
[[nodiscard]] std::vector<std::uint64_t> digest_files(FileSystem& files,
                                                      const ValidCheckpoint& checkpoint,
                                                      FileSlice slice = {});
/// What differs between these digests of the whole files and the manifest: a sentence for the first
/// difference; empty if there is none.
[[nodiscard]] std::string digest_fault(const ValidCheckpoint& checkpoint,
                                       std::span<const std::uint64_t> found);

/// For each name in `kept_as`, the newest step up to `most` that has it. Reads only manifests;
/// unreadable ones are ignored.
[[nodiscard]] std::map<std::string, std::int64_t> kept_steps(
    FileSystem& files, const std::string& folder,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// The checkpoint that one rank proposes to resume from.
struct Proposal {
  std::int64_t step = -1;  // the newest valid one up to the bound; -1: none
  std::uint64_t manifest_digest = 0;
  std::int64_t num_steps = 0;  // number of folders step-<n>, valid or not
};

/// The decision from the proposals of all ranks.
struct Agreement {
  enum class Kind {
    fresh,         // no rank has a checkpoint: start from step 0
    resume,        // all ranks propose `step`
    propose_again  // all ranks propose again, at most `step`
  };
  Kind kind = Kind::fresh;
  std::int64_t step = 0;
};

/// Decides from the proposals of all ranks. A pure function, so every rank decides the same. Throws
/// UsageError, with each rank's proposal, if there are checkpoints but none is valid on every rank,
/// or if ranks see different checkpoints of the same step.
[[nodiscard]] Agreement decide_common(std::span<const Proposal> proposals,
                                      const std::string& folder);

}  // namespace lockstep
