// Which checkpoints a path on the command line stands for, and how such a path is given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/scan.h"

namespace lockstep::cli {

/// What `ckpt inspect` and `ckpt verify` are given.
struct PathArguments {
  bool help = false;
  bool as_json = false;
  std::string path;
};

/// Throws UsageError for anything else, and for no path, unless help is asked for.
[[nodiscard]] PathArguments read_path_arguments(const std::string& verb,
                                                const std::vector<std::string>& arguments);

struct CheckpointPaths {
  std::string folder;              // holds the checkpoints
  std::vector<std::string> paths;  // of each, the newest first; not looked into
  bool is_one = false;             // the path was that of one checkpoint
};

/// `path` is a checkpoint, a folder of checkpoints, or a run, which has one called checkpoints; or
/// one of the last two with a name behind it that one of its checkpoints is kept as.
/// Throws UsageError when it is none of them or holds no checkpoint.
[[nodiscard]] CheckpointPaths find_checkpoints(FileSystem& files, const std::string& path);

/// The one checkpoint at `path`, or the newest valid one of a run; those passed over are told on
/// standard error. Throws UsageError when there is none.
[[nodiscard]] ValidCheckpoint newest_valid_at(FileSystem& files, const std::string& path);

/// "1.5 MB".
[[nodiscard]] std::string size_words(std::uint64_t bytes);

}  // namespace lockstep::cli
