// Finds the checkpoints of a path that was given on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/scan.h"

namespace lockstep::cli {

/// The arguments of `ckpt inspect` and `ckpt verify`.
struct PathArguments {
  bool help = false;
  bool as_json = false;
  std::string path;
};

/// Throws UsageError for other arguments, and for a missing path unless help is requested.
[[nodiscard]] PathArguments read_path_arguments(const std::string& verb,
                                                const std::vector<std::string>& arguments);

struct CheckpointPaths {
  std::string folder;              // the folder of the checkpoints
  std::vector<std::string> paths;  // one per checkpoint, the newest first; not yet verified
  bool is_one = false;             // the path names one checkpoint
};

/// `path` is a checkpoint, a folder of checkpoints, or a run with a folder called checkpoints; or
/// one of the last two, a slash and the name of a kept checkpoint. Throws UsageError for any other
/// path and when there is no checkpoint.
[[nodiscard]] CheckpointPaths find_checkpoints(FileSystem& files, const std::string& path);

/// The one checkpoint at `path`, or the newest valid one of a run; prints on standard error which
/// ones it skipped and why. Throws UsageError when there is no valid checkpoint.
[[nodiscard]] ValidCheckpoint newest_valid_at(FileSystem& files, const std::string& path);

/// "1.5 MB".
[[nodiscard]] std::string size_words(std::uint64_t bytes);

}  // namespace lockstep::cli
