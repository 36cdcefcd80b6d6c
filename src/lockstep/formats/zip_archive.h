// A zip archive: numpy's .npz and Python's wheels. Reads the table at the end of the file, members
// stored or deflated, sizes beyond 4 GB. Refuses encryption, members that overlap, several disks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

struct ZipMember {
  std::string name;  // any bytes, even "../x": check before it becomes a file's name
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t bytes = 0;             // of the contents
  std::uint64_t compressed_bytes = 0;  // in the archive
  std::uint64_t header_offset = 0;     // of the member's own header
};

class ZipArchive {
 public:
  /// Throws UsageError when the file is no zip archive, or a damaged one.
  explicit ZipArchive(FileBytes file);

  [[nodiscard]] const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// The contents: where they are mapped when stored, in memory when deflated. Checks the CRC, so
  /// it reads all of them. Throws UsageError when they are damaged.
  [[nodiscard]] FileBytes contents(const ZipMember& member) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  std::vector<ZipMember> members_;  // in the order of the table
};

}  // namespace lockstep
