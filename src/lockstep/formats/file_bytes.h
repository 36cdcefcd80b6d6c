// The bytes of a file, read-only. Either mapped: opening costs the same for 1 MB and 100 GB, and
// pages are read on access. Or in memory, for decompressed data and tests. If another program
// truncates a mapped file, access ends this process with SIGBUS: replace data files by renaming,
// never in place.
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
  /// Maps the regular file at `path`. For files over 1 GiB, read-ahead is disabled (MADV_RANDOM),
  /// because shuffled reads would load many unused pages. Never waits for a pipe.
  /// Throws SystemError naming the file, UsageError if it is a folder, a pipe or a device.
  [[nodiscard]] static FileBytes map(const std::string& path);

  /// Bytes in memory. `name` is used in messages.
  [[nodiscard]] static FileBytes of(std::string name, std::vector<std::byte> bytes);
  [[nodiscard]] static FileBytes of(std::string name, std::string_view text);

  /// The `count` bytes from `offset`, with their own name. The range must be within the file.
  [[nodiscard]] FileBytes part(std::string name, std::uint64_t offset, std::uint64_t count) const;

  /// Advises the system that the bytes will be read sequentially, so that it reads ahead.
  void expect_front_to_back() const noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  /// The origin of the bytes, for messages.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// A 64-bit id of the data, so that a checkpoint can refuse different data: the digest of the
  /// size, of the first and last 4 KiB, and of 62 more blocks of 4 KiB at even distances; for files
  /// up to 256 KiB, of all bytes. Reads 64 pages for any size. A change between the blocks that
  /// keeps the size is not detected.
  [[nodiscard]] std::uint64_t data_id() const noexcept;

 private:
  FileBytes(std::string name, std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : name_(std::move(name)), owner_(std::move(owner)), bytes_(bytes) {}

  std::string name_;
  std::shared_ptr<const void> owner_;  // the mapping or vector; shared, because a member of an
                                       // archive can outlive the archive
  std::span<const std::byte> bytes_;   // in *owner_
};

}  // namespace lockstep
