// The few things that writing and finding checkpoints asks of a file system, as a seam: commit.h
// says in which order they happen, and tests record, refuse or forget them one by one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/folder_lock.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// A new file being written front to back. Destroying it closes it and promises nothing.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  virtual ~OutputFile() = default;

  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Returns when the bytes written so far survive a loss of power; the file's name in its folder
  /// does only after sync_folder. After a SystemError from here the file is of no more use: a
  /// second try on the same descriptor may succeed without the bytes being there.
  virtual void sync() = 0;
};

using NameFilter = std::function<bool(const std::string& name)>;

/// Any thread may use one. Everything throws SystemError that names the path.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// Makes a file that was not there; one that is there is an error.
  [[nodiscard]] virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  [[nodiscard]] virtual FileBytes read(const std::string& path) = 0;
  /// The names in `folder`, sorted; nothing when there is no such folder.
  [[nodiscard]] virtual std::optional<std::vector<std::string>> list(const std::string& folder) = 0;
  /// False when the folder was there already.
  virtual bool make_folder(const std::string& path) = 0;
  /// Returns when the names that `path` holds now survive a loss of power.
  virtual void sync_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_file(const std::string& path) = 0;
  /// Removes the files of the folder `path` whose names `is_own` accepts, then the folder. Never
  /// follows a symbolic link: one at `path`, or among the files, is removed itself. Does not throw
  /// for what cannot be removed, or is not own: returns one sentence for each thing that stays.
  /// None when there is no such folder.
  [[nodiscard]] virtual std::vector<std::string> remove_folder(const std::string& path,
                                                               const NameFilter& is_own) = 0;
  /// Takes `folder` for this process, as lock_folder does.
  [[nodiscard]] virtual FolderLock try_lock(const std::string& folder) = 0;
};

/// The machine's own.
[[nodiscard]] std::shared_ptr<FileSystem> local_file_system();

/// Makes `path` and what is missing above it, durably.
void make_folders(FileSystem& files, const std::string& path);

}  // namespace lockstep
