// Which checkpoints of a folder are whole, as this rank sees them, and which one all ranks take.
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

/// A checkpoint whose manifest and files have verified.
struct ValidCheckpoint {
  std::string path;
  Manifest manifest;
  std::uint64_t manifest_digest = 0;  // equal on ranks that see the same checkpoint
};

/// The steps of all folders called step-<n>, the newest first, valid or not.
[[nodiscard]] std::vector<std::int64_t> list_steps(FileSystem& files, const std::string& folder);

/// Reads the manifest in `path`, and every byte of the files it lists. Throws UsageError or
/// SystemError that says what is wrong, with both sides of each difference.
[[nodiscard]] ValidCheckpoint verify_checkpoint(FileSystem& files, const std::string& path);
/// The manifest alone: nothing is said about the files. Throws as verify_checkpoint.
[[nodiscard]] ValidCheckpoint read_manifest(FileSystem& files, const std::string& path);
/// As verify_checkpoint of a step of `folder`, whose manifest must be of that step.
[[nodiscard]] ValidCheckpoint verify_step(FileSystem& files, const std::string& folder,
                                          std::int64_t step);

/// What is kept under which name: the newest step not above `most` that has it. Looks at manifests
/// alone; one that cannot be read keeps nothing.
[[nodiscard]] std::map<std::string, std::int64_t> kept_steps(
    FileSystem& files, const std::string& folder,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// What one rank would go on from.
struct Proposal {
  std::int64_t step = -1;  // the newest valid one not above the bound; -1: there is none
  std::uint64_t manifest_digest = 0;
  std::int64_t num_steps = 0;  // folders called step-<n>, valid or not
};

/// What all proposals together come to.
struct Agreement {
  enum class Kind {
    fresh,         // there is no checkpoint
    go_on,         // all propose `step`
    propose_again  // not above `step`
  };
  Kind kind = Kind::fresh;
  std::int64_t step = 0;
};

/// Pure; every rank comes to the same. Throws UsageError with a line for each rank when there are
/// checkpoints but none that is valid everywhere, or not the same one.
[[nodiscard]] Agreement decide_common(std::span<const Proposal> proposals,
                                      const std::string& folder);

}  // namespace lockstep
