// One numpy array: magic, version, a Python dict as text (descr, fortran_order, shape), then the
// elements. Mapped. Object arrays are pickles, which nothing in lockstep opens; they are refused
// with every other dtype that is not a plain little-endian number.
#pragma once

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep {

class NpyFile {
 public:
  /// Reads versions 1, 2 and 3 of the format. Throws UsageError for anything else, for arrays of
  /// several dimensions in Fortran order, and when the elements are cut or more than the shape
  /// says.
  explicit NpyFile(FileBytes file);

  /// Valid as long as a copy of this object.
  [[nodiscard]] Array array() const { return {type_, shape_, file_.bytes().subspan(data_offset_)}; }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  ElementType type_ = ElementType::u8;
  std::vector<std::uint64_t> shape_;
  std::uint64_t data_offset_ = 0;
};

}  // namespace lockstep
