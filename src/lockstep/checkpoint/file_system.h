// The file system operations that checkpoints need, as an interface. commit.h defines their order;
// tests record them, let them fail, or simulate a loss of power.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/folder_lock.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// A file that is being written. The destructor closes it without a sync.
class OutputFile {
 public:
  OutputFile() = default;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  virtual ~OutputFile() = default;

  /// Writes `bytes` at `position`. Throws SystemError.
  virtual void write_at(std::uint64_t position, std::span<const std::byte> bytes) = 0;
  /// Returns when the bytes that were written through this object survive a loss of power. The
  /// file's name in its folder survives only after sync_folder(). Throws SystemError; the file is
  /// then unusable, because a second fsync on the same descriptor can succeed although bytes are
  /// lost.
  virtual void sync() = 0;
};

using NameFilter = std::function<bool(const std::string& name)>;

/// Thread-safe. All functions throw SystemError with the path.
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// Creates a new file. An existing file is an error.
  [[nodiscard]] virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  /// Opens a file that several ranks write, each other bytes, and creates it if it does not exist.
  [[nodiscard]] virtual std::unique_ptr<OutputFile> open_shared(const std::string& path) = 0;
  /// The contents of a file.
  [[nodiscard]] virtual FileBytes read(const std::string& path) = 0;
  /// The names in `folder`, sorted; empty optional if the folder does not exist.
  [[nodiscard]] virtual std::optional<std::vector<std::string>> list(const std::string& folder) = 0;
  /// Creates a folder. Returns false if it already exists.
  virtual bool make_folder(const std::string& path) = 0;
  /// Returns when the current names in `path` survive a loss of power.
  virtual void sync_folder(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove_file(const std::string& path) = 0;
  /// Removes the files in the folder `path` whose names `is_own` accepts, then the folder. Never
  /// follows a symbolic link: the link itself is removed. Returns one sentence for each file that
  /// was not removed, because of an error or because `is_own` rejects it, and does not throw for
  /// these. Returns nothing if the folder does not exist.
  [[nodiscard]] virtual std::vector<std::string> remove_folder(const std::string& path,
                                                               const NameFilter& is_own) = 0;
  /// Locks `folder` for this process, as lock_folder does (folder_lock.h).
  [[nodiscard]] virtual FolderLock try_lock(const std::string& folder) = 0;
};

/// The file system of this machine.
[[nodiscard]] std::shared_ptr<FileSystem> local_file_system();

/// Creates `path` and its missing parent folders, durably. Throws SystemError.
void make_folders(FileSystem& files, const std::string& path);

}  // namespace lockstep
