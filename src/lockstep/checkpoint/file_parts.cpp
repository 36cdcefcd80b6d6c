#include "lockstep/checkpoint/file_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kWord = 8;

std::uint64_t round_down(std::uint64_t position) { return position / kWord * kWord; }

std::uint64_t mark(std::uint64_t position) {
  return digest(std::as_bytes(std::span(&position, 1)));
}

// The parts of one file.
struct Combined {
  FileRecord record;
  std::uint64_t ends = 0;
  std::map<std::uint64_t, FilePart::Word> words = {};  // by position
};

void add(Combined& file, const FilePart& part) {
  if (part.bytes != file.record.bytes) {
    throw UsageError(
        fmt::format("{} has {} bytes on one rank and {} on another; sharded_tensors() must list "
                    "the same tensors, dtypes and sizes on every rank",
                    part.name, file.record.bytes, part.bytes));
  }
  file.record.digest += part.digest;
  file.ends += part.ends;
  for (const auto& word : part.partial_words) {
    auto& whole = file.words[word.position];
    whole.value |= word.value;
    whole.num_bytes += word.num_bytes;
  }
}

FileRecord complete(const Combined& file) {
  auto record = file.record;
  bool is_whole = file.ends == mark(record.bytes) - mark(0);
  Digest digest;
  for (const auto& [position, word] : file.words) {
    const auto expected = std::min(kWord, record.bytes - position);
    is_whole = is_whole && static_cast<std::uint64_t>(word.num_bytes) == expected;
    digest.add(position, std::as_bytes(std::span(&word.value, 1)).first(expected));
  }
  if (!is_whole) {
    throw UsageError(
        fmt::format("the ranks have not written each of the {} bytes of {} exactly once; the "
                    "pieces of sharded_tensors() must cover each element on exactly one rank",
                    record.bytes, record.name));
  }
  record.digest += digest.value();
  return record;
}

}  // namespace

PartDigest::PartDigest(std::string name, std::uint64_t file_bytes)
    : part_{.name = std::move(name), .bytes = file_bytes} {}

void PartDigest::add(const FileExtent& extent) {
  if (extent.bytes.empty()) return;
  const auto begin = extent.position;
  const auto end = begin + extent.bytes.size();
  part_.ends += mark(end) - mark(begin);
  const auto first = round_down(begin + kWord - 1);
  const auto last = end == part_.bytes ? end : round_down(end);  // the file's last word is shorter
  if (first > last) return add_partial(begin, extent.bytes);     // inside one word
  add_partial(begin, extent.bytes.first(first - begin));
  digest_.add(first, extent.bytes.subspan(first - begin, last - first));
  add_partial(last, extent.bytes.subspan(last - begin));
}

void PartDigest::add_partial(std::uint64_t position, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  FilePart::Word word{.position = round_down(position),
                      .num_bytes = static_cast<int>(bytes.size())};
  std::memcpy(reinterpret_cast<std::byte*>(&word.value) + (position - word.position), bytes.data(),
              bytes.size());
  part_.partial_words.push_back(word);
}

FilePart PartDigest::result() const {
  auto part = part_;
  part.digest = digest_.value();
  return part;
}

std::vector<FileRecord> combine_parts(std::span<const FilePart> parts) {
  std::vector<Combined> files;
  for (const auto& part : parts) {
    auto file = std::ranges::find(
        files, part.name, [](const Combined& each) -> auto& { return each.record.name; });
    if (file == files.end()) {
      files.push_back({.record = {part.name, part.bytes}});
      file = std::prev(files.end());
    }
    add(*file, part);
  }
  std::vector<FileRecord> records;
  for (const auto& file : files) records.push_back(complete(file));
  return records;
}

}  // namespace lockstep
