// IDX, the format of MNIST and Fashion-MNIST: two zero bytes, the element type, the number of
// dimensions, each size as a big-endian uint32, then the elements, big-endian. Plain files of bytes
// are used where they are mapped; gzip files, and elements of more than one byte, are put in
// memory.
#pragma once

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

class IdxFile {
 public:
  /// Throws UsageError when the file is no IDX file, is cut, or has bytes left over.
  explicit IdxFile(FileBytes file);

  /// All elements; valid as long as a copy of this object.
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
