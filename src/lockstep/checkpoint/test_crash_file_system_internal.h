// For tests: a file system in memory that can fail or be interrupted at any operation, skip a sync,
// and enumerate every disk that a loss of power could leave. The model of a loss of power:
//
//   bytes of a file      of each writer, written since its last sync, are complete, lost,
//                        truncated, or zeros, independently of those of other writers
//   names in a folder    each change since the folder's last sync has happened or not,
//                        independently of earlier changes
//   a rename             is one change, also onto an existing file
//
// A sync makes only the names of its own folder durable, or the bytes that its own writer has
// written to its file: other writers of the file may be on other hosts. A gap before bytes that
// are durable is zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_system.h"

namespace lockstep {

/// The process was interrupted: thrown by the operation `cut_at` and by all later ones.
struct Cut {};

class CrashFileSystem final : public FileSystem {
 public:
  CrashFileSystem();

  // Faults of the following operations, counted from 0.
  std::optional<int> cut_at;     // this and all later operations do not happen
  std::optional<int> fail_at;    // this operation fails with error_number
  int error_number = 5;          // EIO
  std::optional<int> skip_sync;  // this sync returns without an effect
  /// Called before each operation, to let another rank run between two operations of this one.
  std::function<void(const std::string& operation)> before;
  [[nodiscard]] int num_operations() const { return num_operations_; }
  [[nodiscard]] int num_syncs() const { return num_syncs_; }
  /// The completed operations: "create /c/step-1.tmp-x/model.safetensors".
  [[nodiscard]] const std::vector<std::string>& operations() const { return operations_; }

  std::unique_ptr<OutputFile> create(const std::string& path) override;
  std::unique_ptr<OutputFile> open_shared(const std::string& path) override;
  FileBytes read(const std::string& path) override;
  std::optional<std::vector<std::string>> list(const std::string& folder) override;
  bool make_folder(const std::string& path) override;
  void sync_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  std::vector<std::string> remove_folder(const std::string& path,
                                         const NameFilter& is_own) override;
  FolderLock try_lock(const std::string& /*folder*/) override {
    return {.held = std::make_shared<int>(0)};
  }

  /// Makes the current state durable.
  void settle();
  /// Calls `look` with each disk that a loss of power now could leave, until it returns false.
  /// Returns the number of calls.
  int for_each_crash(const std::function<bool(CrashFileSystem&)>& look) const;

 private:
  friend class CrashFile;

  struct Change {
    std::string removed;  // the removed name, if any
    std::string added;    // the added name of `node`, if any
    int node = -1;
  };
  struct Write {
    std::size_t position = 0;
    std::string bytes;
  };
  struct Node {
    bool is_folder = false;
    std::string bytes = {};  // of a file, as written
    std::string bytes_on_disk = {};
    std::map<int, std::vector<Write>> unsynced = {};  // by writer
    std::map<std::string, int> names = {};
    std::map<std::string, int> names_on_disk = {};
    std::vector<Change> changes = {};  // of names since the last sync
  };

  void begin(const std::string& what, bool is_sync = false);
  [[nodiscard]] bool sync_counts();
  [[nodiscard]] std::optional<int> find(const std::string& path) const;
  [[nodiscard]] int expect(const std::string& path) const;
  [[nodiscard]] int expect_parent(const std::string& path) const;
  void change(int folder, Change change);
  [[nodiscard]] int add_file(const std::string& path);
  [[nodiscard]] std::unique_ptr<OutputFile> writer_of(int node, const std::string& path);

  mutable std::recursive_mutex mutex_;  // guards the members below: ranks may be threads
  std::vector<Node> nodes_;             // the first is the root
  int num_operations_ = 0;
  int num_syncs_ = 0;
  int num_writers_ = 0;
  std::vector<std::string> operations_;
};

}  // namespace lockstep
