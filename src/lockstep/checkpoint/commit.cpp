#include "lockstep/checkpoint/commit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr char kNextManifestName[] = "manifest.json.next";
constexpr std::size_t kChunkBytes = 4U << 20;  // digested and written while it is in the cache

std::vector<std::int64_t> steps_in(FileSystem& files, const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& name : files.list(folder).value_or(std::vector<std::string>{})) {
    if (const auto step = try_step_of(name)) steps.push_back(*step);
  }
  return steps;
}

// True for the names of files that a checkpoint contains.
bool is_own_file(const std::string& name) {
  if (name == kManifestName || name == kNextManifestName) return true;
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const auto part = name.substr(0, dot);
  return is_part_name(part) && name == part_file(part);
}

// The suffix after .tmp- and .gone-: 16 hex digits of the run, -, and the save's number; or
// "import".
bool is_nonce(std::string_view text) {
  if (text == "import") return true;
  constexpr std::size_t run = 16;
  if (text.size() < run + 2 || text[run] != '-') return false;
  const auto is_in = [](std::string_view all) {
    return [all](char c) { return all.find(c) != std::string_view::npos; };
  };
  return std::ranges::all_of(text.substr(0, run), is_in("0123456789abcdef")) &&
         std::ranges::all_of(text.substr(run + 1), is_in("0123456789"));
}

bool is_left_over(const std::string& name) {
  const auto dot = name.find('.');
  if (dot == std::string::npos || !try_step_of(name.substr(0, dot))) return false;
  const auto suffix = std::string_view(name).substr(dot);
  for (const std::string_view kind : {".tmp-", ".gone-"}) {
    if (suffix.starts_with(kind) && is_nonce(suffix.substr(kind.size()))) return true;
  }
  return false;
}

std::string path_of(const std::string& folder, std::int64_t step) {
  return folder + "/" + step_name(step);
}

void write_manifest(FileSystem& files, const std::string& path, const Manifest& manifest) {
  const auto text = to_text(manifest);
  const auto file = files.create(path);
  file->write_at(0, std::as_bytes(std::span(text)));
  file->sync();
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::optional<std::int64_t> try_step_of(std::string_view name) noexcept {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto digits = name.substr(kPrefix.size());
  std::int64_t step = -1;
  const auto [used, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = error == std::errc() && used == digits.data() + digits.size();
  if (!whole || step < 0 || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
  return step;
}

std::string temporary_path(const std::string& folder, std::int64_t step, std::string_view nonce) {
  return fmt::format("{}.tmp-{}", path_of(folder, step), nonce);
}

FilePart write_durably(FileSystem& files, const std::string& where, const FileToWrite& file) {
  const auto path = where + "/" + file.name;
  const auto output = file.is_shared ? files.open_shared(path) : files.create(path);
  PartDigest part(file.name, file.bytes);
  for (auto [position, bytes] : file.extents) {
    while (!bytes.empty()) {
      // Chunks end at words of the digest, so that only the ends of an extent are partial words.
      const auto chunk =
          bytes.first(std::min<std::size_t>(bytes.size(), kChunkBytes - position % 8));
      part.add({position, chunk});
      output->write_at(position, chunk);
      position += chunk.size();
      bytes = bytes.subspan(chunk.size());
    }
  }
  output->sync();
  return part.result();
}

FileRecord write_durably(FileSystem& files, const std::string& where, const std::string& name,
                         std::span<const std::span<const std::byte>> pieces) {
  FileToWrite file{.name = name};
  for (const auto piece : pieces) {
    file.extents.push_back({file.bytes, piece});
    file.bytes += piece.size();
  }
  const auto part = write_durably(files, where, file);
  return combine_parts(std::span(&part, 1)).front();
}

void commit(FileSystem& files, const std::string& folder, std::string_view nonce,
            const Manifest& manifest) {
  const auto temporary = temporary_path(folder, manifest.step, nonce);
  write_manifest(files, temporary + "/" + kManifestName, manifest);
  files.sync_folder(temporary);
  const auto final_path = path_of(folder, manifest.step);
  if (files.list(final_path)) {
    files.rename(final_path, fmt::format("{}.aside-{}", final_path, nonce));
  }
  files.rename(temporary, final_path);
  files.sync_folder(folder);
}

void amend(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  const auto where = path_of(folder, manifest.step);
  const std::string next = kNextManifestName;
  const auto names = files.list(where).value_or(std::vector<std::string>{});
  if (std::ranges::find(names, next) != names.end()) {  // of an interrupted amend()
    files.remove_file(where + "/" + next);
  }
  write_manifest(files, where + "/" + next, manifest);
  files.rename(where + "/" + next, where + "/" + kManifestName);
  files.sync_folder(where);
}

std::vector<std::int64_t> set_newer_aside(FileSystem& files, const std::string& folder,
                                          std::int64_t step, std::string_view nonce) {
  std::vector<std::int64_t> aside;
  for (const auto newer : steps_in(files, folder)) {
    if (newer <= step) continue;
    files.rename(path_of(folder, newer), fmt::format("{}.aside-{}", path_of(folder, newer), nonce));
    aside.push_back(newer);
  }
  if (!aside.empty()) files.sync_folder(folder);
  return aside;
}

std::vector<std::int64_t> steps_to_remove(std::span<const std::int64_t> steps,
                                          const KeptSteps& keep) {
  LOCKSTEP_ASSERT(keep.newest >= 2, "two or more valid checkpoints are kept");
  if (keep.valid.size() < static_cast<std::size_t>(keep.newest)) return {};
  const auto oldest_kept = *std::next(keep.valid.rbegin(), keep.newest - 1);
  std::set<std::int64_t> named;
  for (const auto& [name, step] : keep.named) named.insert(step);
  std::vector<std::int64_t> old;
  std::ranges::copy_if(steps, std::back_inserter(old), [&](std::int64_t step) {
    return step < oldest_kept && !named.contains(step);
  });
  return old;
}

std::vector<std::string> prune(FileSystem& files, const std::string& folder, const KeptSteps& keep,
                               std::string_view nonce) {
  std::vector<std::string> stays;
  for (const auto step : steps_to_remove(steps_in(files, folder), keep)) {
    // Renamed first, so that a partly removed checkpoint does not look like a damaged one.
    const auto gone = fmt::format("{}.gone-{}", path_of(folder, step), nonce);
    try {
      files.rename(path_of(folder, step), gone);
      std::ranges::move(files.remove_folder(gone, is_own_file), std::back_inserter(stays));
    } catch (const SystemError& error) {
      stays.emplace_back(error.what());
    }
  }
  return stays;
}

Swept sweep(FileSystem& files, const std::string& folder) {
  Swept swept;
  for (const auto& name : files.list(folder).value_or(std::vector<std::string>{})) {
    if (!is_left_over(name)) continue;
    try {
      auto stays = files.remove_folder(fmt::format("{}/{}", folder, name), is_own_file);
      if (stays.empty()) swept.removed.push_back(name);
      std::ranges::move(stays, std::back_inserter(swept.stays));
    } catch (const SystemError& error) {
      swept.stays.emplace_back(error.what());
    }
  }
  return swept;
}

void remove_quietly(FileSystem& files, const std::string& path) noexcept {
  try {
    (void)files.remove_folder(path, is_own_file);
  } catch (const std::exception&) {  // the caller has already reported an error of this disk
  }
}

}  // namespace lockstep
