#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/test_crash_file_system_internal.h"

namespace lockstep {
namespace {

std::pair<std::string, std::string> split(const std::string& path) {
  const auto slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

// What a loss of power can make of the bytes of a writer.
enum class Fate { lost, complete, truncated, zeros };

std::string left_of(const std::string& written, Fate fate) {
  switch (fate) {
    case Fate::lost:
      return {};
    case Fate::complete:
      return written;
    case Fate::truncated:
      return written.substr(0, written.size() / 2);
    default:
      return std::string(written.size(), '\0');
  }
}

void put(std::string& file, std::size_t position, std::string_view bytes) {
  if (bytes.empty()) return;
  if (file.size() < position + bytes.size()) file.resize(position + bytes.size());
  file.replace(position, bytes.size(), bytes);
}

}  // namespace

class CrashFile final : public OutputFile {
 public:
  CrashFile(CrashFileSystem& files, int node, int writer, std::string path)
      : files_(files), node_(node), writer_(writer), path_(std::move(path)) {}

  void write_at(std::uint64_t position, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(files_.mutex_);
    files_.begin("write " + path_);
    auto& node = files_.nodes_[static_cast<std::size_t>(node_)];
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    put(node.bytes, position, text);
    node.unsynced[writer_].push_back({position, std::string(text)});
  }
  void sync() override {
    const std::lock_guard lock(files_.mutex_);
    files_.begin("sync " + path_, true);
    if (!files_.sync_counts()) return;
    auto& node = files_.nodes_[static_cast<std::size_t>(node_)];
    for (const auto& [position, bytes] : node.unsynced[writer_]) {
      put(node.bytes_on_disk, position, bytes);
    }
    node.unsynced.erase(writer_);
  }

 private:
  CrashFileSystem& files_;
  int node_;
  int writer_;
  std::string path_;
};

CrashFileSystem::CrashFileSystem() { nodes_.push_back({.is_folder = true}); }

void CrashFileSystem::begin(const std::string& what, bool is_sync) {
  if (const auto call = before) call(what);  // a copy: it may replace itself
  const int number = num_operations_++;
  if (is_sync) ++num_syncs_;
  if (cut_at && number >= *cut_at) throw Cut{};
  if (fail_at && number == *fail_at) throw SystemError("cannot " + what, error_number);
  operations_.push_back(what);
}

bool CrashFileSystem::sync_counts() { return skip_sync != num_syncs_ - 1; }

std::optional<int> CrashFileSystem::find(const std::string& path) const {
  int node = 0;
  for (std::size_t at = 1; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto& names = nodes_[static_cast<std::size_t>(node)].names;
    const auto found = names.find(path.substr(at, end - at));
    if (found == names.end()) return std::nullopt;
    node = found->second;
    at = end + 1;
  }
  return node;
}

int CrashFileSystem::expect(const std::string& path) const {
  if (const auto node = find(path)) return *node;
  throw SystemError("cannot find " + path, ENOENT);
}

int CrashFileSystem::expect_parent(const std::string& path) const {
  return expect(split(path).first);
}

void CrashFileSystem::change(int folder, Change change) {
  auto& node = nodes_[static_cast<std::size_t>(folder)];
  if (!change.removed.empty()) node.names.erase(change.removed);
  if (!change.added.empty()) node.names[change.added] = change.node;
  node.changes.push_back(std::move(change));
}

int CrashFileSystem::add_file(const std::string& path) {
  const int parent = expect_parent(path);
  const int node = static_cast<int>(nodes_.size());
  nodes_.push_back({});
  change(parent, {.removed = {}, .added = split(path).second, .node = node});
  return node;
}

std::unique_ptr<OutputFile> CrashFileSystem::writer_of(int node, const std::string& path) {
  return std::make_unique<CrashFile>(*this, node, num_writers_++, path);
}

std::unique_ptr<OutputFile> CrashFileSystem::create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin("create " + path);
  if (find(path)) throw SystemError("cannot create " + path, EEXIST);
  return writer_of(add_file(path), path);
}

std::unique_ptr<OutputFile> CrashFileSystem::open_shared(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin("open " + path);
  const auto node = find(path);
  return writer_of(node ? *node : add_file(path), path);
}

FileBytes CrashFileSystem::read(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return FileBytes::of(path, nodes_[static_cast<std::size_t>(expect(path))].bytes);
}

std::optional<std::vector<std::string>> CrashFileSystem::list(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const auto node = find(folder);
  if (!node) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [name, _] : nodes_[static_cast<std::size_t>(*node)].names) names.push_back(name);
  return names;
}

bool CrashFileSystem::make_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin("make_folder " + path);
  if (find(path)) return false;
  const int parent = expect_parent(path);
  const int node = static_cast<int>(nodes_.size());
  nodes_.push_back({.is_folder = true});
  change(parent, {.removed = {}, .added = split(path).second, .node = node});
  return true;
}

void CrashFileSystem::sync_folder(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin("sync_folder " + path, true);
  if (!sync_counts()) return;
  auto& node = nodes_[static_cast<std::size_t>(expect(path))];
  node.names_on_disk = node.names;
  node.changes.clear();
}

void CrashFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  begin("rename " + from + " to " + to);
  if (const auto there = find(to); there && nodes_[static_cast<std::size_t>(*there)].is_folder) {
    throw SystemError("cannot rename " + from + " to " + to, ENOTEMPTY);
  }
  change(expect_parent(from),
         {.removed = split(from).second, .added = split(to).second, .node = expect(from)});
}

void CrashFileSystem::remove_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  begin("remove_file " + path);
  (void)expect(path);
  change(expect_parent(path), {.removed = split(path).second, .added = {}, .node = -1});
}

std::vector<std::string> CrashFileSystem::remove_folder(const std::string& path,
                                                        const NameFilter& is_own) {
  const std::lock_guard lock(mutex_);
  const auto names = list(path);
  if (!names) return {};
  std::vector<std::string> stays;
  for (const auto& name : *names) {
    try {
      if (!is_own(name)) throw SystemError("cannot remove " + name, EPERM);
      remove_file(path + "/" + name);
    } catch (const SystemError& error) {
      stays.emplace_back(error.what());
    }
  }
  try {
    begin("remove_folder " + path);
    if (!nodes_[static_cast<std::size_t>(expect(path))].names.empty()) {
      throw SystemError("cannot remove " + path, ENOTEMPTY);
    }
    change(expect_parent(path), {.removed = split(path).second, .added = {}, .node = -1});
  } catch (const SystemError& error) {
    stays.emplace_back(error.what());
  }
  return stays;
}

void CrashFileSystem::settle() {
  for (auto& node : nodes_) {
    node.bytes_on_disk = node.bytes;
    node.unsynced.clear();
    node.names_on_disk = node.names;
    node.changes.clear();
  }
  num_operations_ = 0;
  num_syncs_ = 0;
  operations_.clear();
}

int CrashFileSystem::for_each_crash(const std::function<bool(CrashFileSystem&)>& look) const {
  // Enumerates all disks with a mixed-radix counter: one digit per writer with unsynced bytes (base
  // 4) and per unsynced change of a name (base 2).
  std::vector<int> bases;
  for (const auto& node : nodes_) {
    bases.insert(bases.end(), node.unsynced.size(), 4);
    bases.insert(bases.end(), node.changes.size(), 2);
  }
  std::vector<int> digits(bases.size(), 0);
  for (int shown = 1;; ++shown) {
    CrashFileSystem disk;
    disk.nodes_ = nodes_;
    auto digit = digits.begin();
    for (auto& node : disk.nodes_) {
      node.bytes = node.bytes_on_disk;
      for (const auto& [writer, writes] : node.unsynced) {
        const auto fate = static_cast<Fate>(*digit++);
        for (const auto& write : writes)
          put(node.bytes, write.position, left_of(write.bytes, fate));
      }
      node.names = node.names_on_disk;
      for (const auto& change : node.changes) {
        if (*digit++ == 0) continue;
        if (!change.removed.empty()) node.names.erase(change.removed);
        if (!change.added.empty()) node.names[change.added] = change.node;
      }
    }
    disk.settle();
    if (!look(disk)) return shown;
    std::size_t at = 0;
    while (at < digits.size() && ++digits[at] == bases[at]) digits[at++] = 0;
    if (at == digits.size()) return shown;
  }
}

}  // namespace lockstep
