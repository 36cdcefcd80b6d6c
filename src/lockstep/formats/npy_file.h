// One numpy array in a mapped file: magic string, version, a Python dict as text (descr,
// fortran_order, shape), then the elements. Object arrays are pickles, which lockstep never opens;
// they are refused, as is every other dtype that is not a little-endian number.
#pragma once

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

class NpyFile {
 public:
  /// Reads versions 1, 2 and 3 of the format. Throws UsageError for other files, for arrays of
  /// several dimensions in Fortran order, and if the number of elements does not match the shape.
  explicit NpyFile(FileBytes file);

  /// The array. Valid while this object or a copy of it exists.
  [[nodiscard]] Array array() const { return {type_, shape_, file_.bytes().subspan(data_offset_)}; }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  ElementType type_ = ElementType::u8;
  std::vector<std::uint64_t> shape_;
  std::uint64_t data_offset_ = 0;
};

}  // namespace lockstep
