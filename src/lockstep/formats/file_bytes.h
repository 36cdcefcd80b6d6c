// The bytes of a file, read-only: mapped, so that opening costs the same for 1 MB and 100 GB and
// pages are read when they are touched; or in memory, for what was decompressed or made by a test.
// A file that another program cuts while it is mapped ends this one with SIGBUS: replace data files
// by renaming, never in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class FileBytes {
 public:
  /// Maps the regular file at `path`. Of files over 1 GiB only the pages that are touched are read,
  /// not their neighbours: a shuffled read of a large file would otherwise load most of it for
  /// nothing. Throws SystemError naming the file, UsageError if it is a folder, a pipe or a device,
  /// at once.
  [[nodiscard]] static FileBytes map(const std::string& path);

  /// Bytes that are in memory already; `name` stands for them in messages.
  [[nodiscard]] static FileBytes of(std::string name, std::vector<std::byte> bytes);
  [[nodiscard]] static FileBytes of(std::string name, std::string_view text);

  /// `count` bytes from `offset` on, under a name of their own; both must lie within.
  [[nodiscard]] FileBytes part(std::string name, std::uint64_t offset, std::uint64_t count) const;

  /// Says that the bytes will be read front to back, so that the system may read ahead.
  void expect_front_to_back() const noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// Where the bytes came from, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// 64 bits that tell this data from other data, for a checkpoint to refuse the wrong file: the
  /// digest of the size, of the first and last 4 KiB, and of 62 more blocks of 4 KiB spread evenly;
  /// of everything up to 256 KiB. Reads 64 pages whatever the size; a change between the blocks
  /// that leaves the size alone is not seen.
  [[nodiscard]] std::uint64_t data_id() const noexcept;

 private:
  FileBytes(std::string name, std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : name_(std::move(name)), owner_(std::move(owner)), bytes_(bytes) {}

  std::string name_;
  std::shared_ptr<const void> owner_;  // the mapping or vector; shared because a member of an
                                       // archive may outlive the archive
  std::span<const std::byte> bytes_;   // in *owner_
};

}  // namespace lockstep
