#include "lockstep/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

// After each write of this many bytes or more the kernel is asked to start writing them, so that
// the disk works while the next bytes are digested and sync() has little left to write. Small
// writes are left to the kernel, because neighboring ones may follow.
constexpr ssize_t kWriteBehindBytes = 1 << 20;
constexpr std::size_t kMaxWriteBytes = 8U << 20;

// Sorted.
std::vector<std::string> names_in(const FileDescriptor& folder, const std::string& path) {
  auto stream = folder.duplicate();
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::fdopendir(stream.number()), ::closedir);
  if (!open) throw SystemError(fmt::format("cannot list {}", path), errno);
  (void)stream.release();  // the stream closes it
  std::vector<std::string> names;
  errno = 0;
  while (const auto* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) throw SystemError(fmt::format("cannot list {}", path), errno);
  std::ranges::sort(names);
  return names;
}

// The flag for a file that ranks on several hosts write. An NFS client may write whole pages,
// and so overwrite bytes of the same page that another host has just written with older ones. With
// O_DSYNC it writes exactly the bytes of each call.
int shared_flag(const std::string& path) {
  struct statfs facts {};
  const auto folder = std::filesystem::path(path).parent_path();
  if (::statfs(folder.c_str(), &facts) != 0) return 0;  // opening the file reports it
  return facts.f_type == NFS_SUPER_MAGIC ? O_DSYNC : 0;
}

class LocalFile final : public OutputFile {
 public:
  LocalFile(std::string path, int flags)
      : path_(std::move(path)),
        file_(FileDescriptor::open(path_, O_WRONLY | O_CREAT | flags, 0644)) {}

  void write_at(std::uint64_t position, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kMaxWriteBytes));
      const auto at = static_cast<off64_t>(position);
      const auto written = ::pwrite(file_.number(), part.data(), part.size(), at);
      if (written < 0) {
        if (errno == EINTR) continue;
        throw SystemError(fmt::format("cannot write {} bytes to {}", bytes.size(), path_), errno);
      }
      if (written >= kWriteBehindBytes) {  // only a hint: sync() reports errors of the write
        (void)::sync_file_range(file_.number(), at, written, SYNC_FILE_RANGE_WRITE);
      }
      position += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void sync() override {
    if (::fsync(file_.number()) != 0) {
      throw SystemError(fmt::format("cannot sync {} to the disk (fsync)", path_), errno);
    }
  }

 private:
  std::string path_;
  FileDescriptor file_;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<LocalFile>(path, O_EXCL);
  }

  std::unique_ptr<OutputFile> open_shared(const std::string& path) override {
    return std::make_unique<LocalFile>(path, shared_flag(path));
  }

  FileBytes read(const std::string& path) override { return FileBytes::map(path); }

  std::optional<std::vector<std::string>> list(const std::string& folder) override {
    const FileDescriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (open) return names_in(open, folder);
    if (errno == ENOENT) return std::nullopt;
    throw SystemError(fmt::format("cannot list {}", folder), errno);
  }

  bool make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return true;
    const int error = errno;
    if (error == EEXIST && std::filesystem::is_directory(path)) return false;
    throw SystemError(fmt::format("cannot create the folder {}", path), error);
  }

  void sync_folder(const std::string& path) override {
    const auto folder = FileDescriptor::open(path, O_RDONLY | O_DIRECTORY);
    if (::fsync(folder.number()) != 0) {
      throw SystemError(fmt::format("cannot sync the folder {} to the disk (fsync)", path), errno);
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

  std::vector<std::string> remove_folder(const std::string& path,
                                         const NameFilter& is_own) override {
    const FileDescriptor folder(
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) return remove_link(path, errno);
    std::vector<std::string> stays;
    bool is_empty = true;
    for (const auto& name : names_in(folder, path)) {
      if (!is_own(name)) {
        stays.push_back(
            fmt::format("cannot remove {}: it contains {}, which lockstep did not write", path,
                        in_quotes(name)));
      } else if (::unlinkat(folder.number(), name.c_str(), 0) == 0) {
        continue;
      } else {
        stays.emplace_back(
            SystemError(fmt::format("cannot remove {}/{}", path, name), errno).what());
      }
      is_empty = false;
    }
    if (is_empty && ::rmdir(path.c_str()) != 0 && errno != ENOENT) {
      stays.emplace_back(
          SystemError(fmt::format("cannot remove the folder {}", path), errno).what());
    }
    return stays;
  }

  FolderLock try_lock(const std::string& folder) override { return lock_folder(folder); }

 private:
  // Called if `path` could not be opened as a folder.
  static std::vector<std::string> remove_link(const std::string& path, int error) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0 && errno == ENOENT) return {};
    if (!S_ISLNK(facts.st_mode)) {
      return {SystemError(fmt::format("cannot remove {}", path), error).what()};
    }
    if (::unlink(path.c_str()) == 0) return {};
    return {SystemError(fmt::format("cannot remove the link {}", path), errno).what()};
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
