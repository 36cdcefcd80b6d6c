#include "lockstep/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
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

// After each such amount the kernel is asked to start writing, so that the disk works while the
// next bytes are digested and sync() has little left to write.
constexpr std::size_t kWriteBehindBytes = 8U << 20;

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

class LocalFile final : public OutputFile {
 public:
  explicit LocalFile(std::string path)
      : path_(std::move(path)),
        file_(FileDescriptor::open(path_, O_WRONLY | O_CREAT | O_EXCL, 0644)) {}

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kWriteBehindBytes));
      write_all(file_.number(), part, path_);
      // Only a hint: sync() reports errors of the write.
      (void)::sync_file_range(file_.number(), static_cast<off64_t>(written_),
                              static_cast<off64_t>(part.size()), SYNC_FILE_RANGE_WRITE);
      written_ += part.size();
      bytes = bytes.subspan(part.size());
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
  std::size_t written_ = 0;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<LocalFile>(path);
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
