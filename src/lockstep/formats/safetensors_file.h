// A safetensors file, mapped: the header is read by base/safetensors_header.h, as strictly as it
// says; tensors are used where they lie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"
#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

class SafetensorsFile {
 public:
  /// Throws UsageError naming the file when its header is not as it should be.
  explicit SafetensorsFile(FileBytes file);

  [[nodiscard]] const SafetensorsHeader& header() const noexcept { return header_; }
  /// In the order of the data.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// The tensor called `name`, valid as long as a copy of this object. Throws UsageError when there
  /// is none, listing those there are, and for dtypes of 4, 6 and 8 bit floats and complex numbers.
  [[nodiscard]] Array array(std::string_view name) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  SafetensorsHeader header_;
  std::vector<std::string> names_;
};

}  // namespace lockstep
