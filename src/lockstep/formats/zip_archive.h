// A zip archive: numpy's .npz and Python's wheels. Supports stored and deflated members and sizes
// beyond 4 GB (zip64). Refuses encryption, overlapping members and multi-disk archives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

struct ZipMember {
  std::string name;  // any bytes, even "../x": check it before use as a file name
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;             // of the contents
  std::uint64_t compressed_bytes = 0;  // in the archive
  std::uint64_t header_offset = 0;     // of the member's own header
};

class ZipArchive {
 public:
  /// Throws UsageError if the file is not a zip archive, or is damaged.
  explicit ZipArchive(FileBytes file);

  [[nodiscard]] const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// The contents of a member: a view of the mapping if stored, in memory if deflated. Reads all
  /// bytes to check the CRC. Throws UsageError if they are damaged.
  [[nodiscard]] FileBytes contents(const ZipMember& member) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  std::vector<ZipMember> members_;  // in the order of the central directory
};

}  // namespace lockstep
