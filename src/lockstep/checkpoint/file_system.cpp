#include "lockstep/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

// The kernel is told to begin writing after so many bytes, so that the disk works while the next
// ones are still being digested, and sync() finds little left to do.
constexpr std::size_t kWriteBehindBytes = 8U << 20;

class LocalFile final : public OutputFile {
 public:
  explicit LocalFile(std::string path)
      : path_(std::move(path)),
        file_(FileDescriptor::open(path_, O_WRONLY | O_CREAT | O_EXCL, 0644)) {}

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kWriteBehindBytes));
      write_all(file_.number(), part, path_);
      // Only a hint: what goes wrong with the write itself is reported by sync().
      (void)::sync_file_range(file_.number(), static_cast<off64_t>(written_),
                              static_cast<off64_t>(part.size()), SYNC_FILE_RANGE_WRITE);
      written_ += part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  void sync() override {
    if (::fsync(file_.number()) != 0) {
      throw SystemError(fmt::format("cannot bring {} to the disk (fsync)", path_), errno);
    }
  }

 private:
  std::string path_;
  FileDescriptor file_;
  std::size_t written_ = 0;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<LocalFile>(path);
  }

  FileBytes read(const std::string& path) override { return FileBytes::map(path); }

  std::optional<std::vector<std::string>> list(const std::string& folder) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
    if (!open) {
      if (errno == ENOENT) return std::nullopt;
      throw SystemError(fmt::format("cannot list {}", folder), errno);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const auto* entry = ::readdir(open.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    if (errno != 0) throw SystemError(fmt::format("cannot list {}", folder), errno);
    std::ranges::sort(names);
    return names;
  }

  bool make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return true;
    const int error = errno;
    if (error == EEXIST && std::filesystem::is_directory(path)) return false;
    throw SystemError(fmt::format("cannot make the folder {}", path), error);
  }

  void sync_folder(const std::string& path) override {
    const auto folder = FileDescriptor::open(path, O_RDONLY | O_DIRECTORY);
    if (::fsync(folder.number()) != 0) {
      throw SystemError(fmt::format("cannot bring the folder {} to the disk (fsync)", path), errno);
    }
  }

  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
      throw SystemError(fmt::format("cannot rename {} to {}", from, to), errno);
    }
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0)
      throw SystemError(fmt::format("cannot remove {}", path), errno);
  }

  void remove_folder(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) {
      throw SystemError(fmt::format("cannot remove the folder {}", path), errno);
    }
  }

  std::shared_ptr<const void> try_lock(const std::string& folder) override {
    auto open = FileDescriptor::open(folder, O_RDONLY | O_DIRECTORY);
    if (::flock(open.number(), LOCK_EX | LOCK_NB) == 0) {
      return std::make_shared<const FileDescriptor>(std::move(open));
    }
    if (errno == EWOULDBLOCK) return nullptr;
    throw SystemError(fmt::format("cannot lock the folder {}", folder), errno);
  }
};

}  // namespace

std::shared_ptr<FileSystem> local_file_system() { return std::make_shared<LocalFileSystem>(); }

void make_folders(FileSystem& files, const std::string& path) {
  if (files.list(path)) return;
  const auto above = std::filesystem::path(path).parent_path().string();
  const auto parent = above.empty() ? std::string(".") : above;
  if (parent != path) make_folders(files, parent);
  if (files.make_folder(path)) files.sync_folder(parent);
}

}  // namespace lockstep
