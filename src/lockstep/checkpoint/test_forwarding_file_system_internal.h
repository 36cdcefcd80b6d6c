// For tests: forwards to the real file system; tests override single operations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_system.h"

namespace lockstep {

class ForwardingFileSystem : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return real_->create(path);
  }
  std::unique_ptr<OutputFile> open_shared(const std::string& path) override {
    return real_->open_shared(path);
  }
  FileBytes read(const std::string& path) override { return real_->read(path); }
  std::optional<std::vector<std::string>> list(const std::string& folder) override {
    return real_->list(folder);
  }
  bool make_folder(const std::string& path) override { return real_->make_folder(path); }
  void sync_folder(const std::string& path) override { real_->sync_folder(path); }
  void rename(const std::string& from, const std::string& to) override { real_->rename(from, to); }
  void remove_file(const std::string& path) override { real_->remove_file(path); }
  std::vector<std::string> remove_folder(const std::string& path,
                                         const NameFilter& is_own) override {
    return real_->remove_folder(path, is_own);
  }
  FolderLock try_lock(const std::string& folder) override { return real_->try_lock(folder); }

 private:
  std::shared_ptr<FileSystem> real_ = local_file_system();
};

}  // namespace lockstep
