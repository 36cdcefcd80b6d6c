// For tests: a file system in memory that can fail or be cut off at any operation, skip a sync, and
// show every disk that a loss of power could leave behind. The model of such a loss:
//
//   bytes of a file      written since its last sync are there, lost, there in part, or zeros
//   names in a folder    each change since the folder's last sync has happened or not, whatever
//                        became of the changes before it
//   a rename             is one change, also onto a file that was there
//
// A sync makes lasting what its file or folder holds, nothing else.
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

/// The process is gone: thrown by the operation it was cut off at and by all after it.
struct Cut {};

class CrashFileSystem final : public FileSystem {
 public:
  CrashFileSystem();

  // What may happen to the operations from here on, which are counted from 0.
  std::optional<int> cut_at;     // this one and the rest never happen
  std::optional<int> fail_at;    // this one fails with error_number
  int error_number = 5;          // EIO
  std::optional<int> skip_sync;  // the sync of that number says it is done and is not
  [[nodiscard]] int num_operations() const { return num_operations_; }
  [[nodiscard]] int num_syncs() const { return num_syncs_; }
  /// What was done, one line each: "create /c/step-1.tmp-x/model.safetensors".
  [[nodiscard]] const std::vector<std::string>& operations() const { return operations_; }

  std::unique_ptr<OutputFile> create(const std::string& path) override;
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

  /// Everything that is there now is on the disk.
  void settle();
  /// Calls `look` with each disk that a loss of power now could leave, until it returns false.
  /// Returns how many were shown.
  int for_each_crash(const std::function<bool(CrashFileSystem&)>& look) const;

 private:
  friend class CrashFile;

  struct Change {
    std::string removed;  // a name that is gone, if any
    std::string added;    // a name that leads to `node`, if any
    int node = -1;
  };
  struct Node {
    bool is_folder = false;
    bool lasts = true;       // of a file: its bytes are on the disk
    std::string bytes = {};  // as written
    std::string bytes_on_disk = {};
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

  mutable std::recursive_mutex mutex_;  // guards what follows: ranks may be threads
  std::vector<Node> nodes_;             // the first is the root
  int num_operations_ = 0;
  int num_syncs_ = 0;
  std::vector<std::string> operations_;
};

}  // namespace lockstep
