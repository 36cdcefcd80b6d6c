// IDX, the format of MNIST and Fashion-MNIST: two zero bytes, the element type, the number of
// dimensions, each size as a big-endian uint32, then the elements, big-endian. Uncompressed files
// of bytes are used in the mapping; gzip files, and elements of more than one byte, are copied to
// memory.
#pragma once

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

class IdxFile {
 public:
  /// Throws UsageError if the file is not an IDX file, is truncated, or has extra bytes.
  explicit IdxFile(FileBytes file);

  /// All elements. Valid while this object or a copy of it exists.
  [[nodiscard]] Array array() const { return {type_, shape_, elements_.bytes()}; }

  [[nodiscard]] bool compressed() const noexcept { return compressed_; }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  bool compressed_ = false;
  ElementType type_ = ElementType::u8;
  std::vector<std::uint64_t> shape_;
  FileBytes elements_;
};

}  // namespace lockstep
